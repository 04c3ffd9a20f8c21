// The draws of uniform_row.h for s <= S, in registers: every index is a constant once the inner loops are unrolled.
#pragma once
#include "uniform_row.h"

#if defined(__CUDACC_RTC__) || defined(__CUDACC__)
#define BS_UNROLL _Pragma("unroll")
#else
#define BS_UNROLL
#endif

// s positions of a row of d, ascending: Floyd's of d >= s (`distinct`), or independent ones of d > 0.
// picks[s .. S - 1] end as 2^32 - 1, above every position.
template <int S>
BS_HD void bs_draw_registers(const BsStream& stream, bs_u32 d, bs_u32 s, bool distinct, bs_u32* picks) {
  BS_UNROLL
  for (int i = 0; i < S; ++i) picks[i] = 0xFFFFFFFFu;
  for (bs_u32 four = 0; four < s; four += 4) {
    const BsWords words = bs_block(stream, four >> 2);
    BS_UNROLL
    for (bs_u32 j = 0; j < 4; ++j) {
      const bs_u32 t = four + j;
      if (t >= s) break;
      const bs_u32 last = d - (distinct ? s - t : 1u);  // draw t is uniform in 0 .. last
      bs_u32 pick = bs_bounded(stream, t, words.v[j], last + 1u);
      bool taken = false;
      BS_UNROLL
      for (int i = 0; i < S; ++i) taken |= picks[i] == pick;
      if (distinct && taken) pick = last;
      BS_UNROLL
      for (int i = 0; i < S; ++i) {  // into its place: what is larger moves up
        const bs_u32 low = picks[i] < pick ? picks[i] : pick;
        pick = picks[i] < pick ? pick : picks[i];
        picks[i] = low;
      }
    }
  }
}
