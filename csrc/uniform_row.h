// Uniform draws from one row: which word decides draw t, how it is bounded, what a taken position means.
#pragma once
#include "philox.h"

// Draw t as an integer below `range`, exactly uniform: multiply-shift, and rejection of the words that would
// favour some results (Lemire, "Fast random integer generation in an interval", 2019). The i-th retry of draw t
// is word 0 of block 2^31 + i 2^20 + t, so a retry disturbs no other draw.
BS_HD bs_u32 bs_bounded(const BsStream& s, bs_u32 t, bs_u32 word, bs_u32 range) {
  bs_u64 product = (bs_u64)word * range;
  if ((bs_u32)product < range) {
    const bs_u32 uneven = (0u - range) % range;
    for (bs_u32 retry = 0; (bs_u32)product < uneven; ++retry)
      product = (bs_u64)bs_block(s, 0x80000000u + (retry << 20) + t).v[0] * range;
  }
  return (bs_u32)(product >> 32);
}

// Walks through draws t = 0, 1, 2, ...: word t mod 4 of block t div 4.
struct BsDraws {
  const BsStream& stream;
  BsWords words;
  bs_u32 t;
  BS_HD explicit BsDraws(const BsStream& s) : stream(s), words(), t(0) {}
  BS_HD bs_u32 below(bs_u32 range) {
    if ((t & 3u) == 0) words = bs_block(stream, t >> 2);
    const bs_u32 word = words.v[t & 3u];
    return bs_bounded(stream, t++, word, range);
  }
};

// Floyd's s < d distinct positions, ascending. Draw t is uniform in 0 .. j, j = d - s + t; where it is taken
// already, j itself is picked. j exceeds every earlier pick, so it goes to the end.
BS_HD void bs_floyd_row(const BsStream& stream, bs_u32 d, bs_u32 s, bs_u32* picks) {
  BsDraws draws(stream);
  for (bs_u32 t = 0; t < s; ++t) {
    const bs_u32 j = d - s + t, pick = draws.below(j + 1);
    bs_u32 at = t;
    while (at > 0 && picks[at - 1] > pick) --at;
    if (at > 0 && picks[at - 1] == pick) {
      picks[t] = j;
      continue;
    }
    for (bs_u32 i = t; i > at; --i) picks[i] = picks[i - 1];
    picks[at] = pick;
  }
}

// The same set for a large s: membership in a bitmap of d bits (zero on entry, zero on return), O(s + d / 64).
BS_HD void bs_floyd_row_large(const BsStream& stream, bs_u32 d, bs_u32 s, bs_u32* picks, bs_u64* bitmap) {
  BsDraws draws(stream);
  for (bs_u32 t = 0; t < s; ++t) {
    const bs_u32 j = d - s + t;
    bs_u32 pick = draws.below(j + 1);
    if (bitmap[pick >> 6] >> (pick & 63u) & 1u) pick = j;
    bitmap[pick >> 6] |= 1ull << (pick & 63u);
  }
  bs_u32 found = 0;
  for (bs_u32 w = 0; w <= (d - 1) >> 6; ++w)
    for (; bitmap[w]; bitmap[w] &= bitmap[w] - 1)
      picks[found++] = w * 64 + 63 - (bs_u32)bs_leading_zeros(bitmap[w] & (~bitmap[w] + 1));
}

// s independent positions of d > 0, ascending, repetitions kept (insertion keeps equal ones together).
BS_HD void bs_replacement_row(const BsStream& stream, bs_u32 d, bs_u32 s, bs_u32* picks) {
  BsDraws draws(stream);
  for (bs_u32 t = 0; t < s; ++t) {
    const bs_u32 pick = draws.below(d);
    bs_u32 at = t;
    for (; at > 0 && picks[at - 1] > pick; --at) picks[at] = picks[at - 1];
    picks[at] = pick;
  }
}
