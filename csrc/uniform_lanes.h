// The draws of uniform_row.h for LANES rows at once, bit for bit: a lane is a row, each step is one loop over the
// lanes, and no branch depends on a draw. Host only; a device has a thread for every row.
#pragma once
#include <utility>
#include <vector>

#include "uniform_row.h"

constexpr int LANES = 16;

struct alignas(64) BsLanes {
  bs_u32 v[LANES];
};

// Four words of block `index` of each row's stream.
BS_INLINE void bs_block_lanes(bs_u64 seed, bs_u32 tag, const BsLanes& vertex, const BsLanes& minibatch, bs_u32 index, BsLanes* words) {
  for (int l = 0; l < LANES; ++l) {
    const BsWords block = bs_block(BsStream{seed, vertex.v[l], minibatch.v[l], tag}, index);
    for (int j = 0; j < 4; ++j) words[j].v[l] = block.v[j];
  }
}

// The comparisons that sort s numbers: Batcher's merge exchange (Knuth, TAOCP 3, 5.2.2 M), alike for all lanes.
class BsNetwork {
 public:
  explicit BsNetwork(bs_u32 s) {
    bs_u32 top = 1;
    while (2 * top < s) top *= 2;
    for (bs_u32 p = top; p > 0; p /= 2)
      for (bs_u32 q = top, r = 0, d = p;; d = q - p, q /= 2, r = p) {
        for (bs_u32 i = 0; i + d < s; ++i)
          if ((i & p) == r) pairs_.push_back({i, i + d});
        if (q == p) break;
      }
  }
  BS_INLINE void sort(BsLanes* picks) const {
    for (const auto& [i, j] : pairs_) {
      BsLanes x = picks[i], y = picks[j], low, high;
      for (int l = 0; l < LANES; ++l) low.v[l] = x.v[l] < y.v[l] ? x.v[l] : y.v[l];
      for (int l = 0; l < LANES; ++l) high.v[l] = x.v[l] < y.v[l] ? y.v[l] : x.v[l];
      picks[i] = low;
      picks[j] = high;
    }
  }

 private:
  std::vector<std::pair<bs_u32, bs_u32>> pairs_;
};

// s positions of each row, ascending: Floyd's of d >= s (`distinct`), or independent ones of d > 0.
// Returns false if bs_bounded might reject some word; the caller then draws the rows one by one.
BS_INLINE bool bs_draw_lanes(bs_u64 seed, bs_u32 tag, const BsLanes& vertex, const BsLanes& minibatch, const BsLanes& degree, bs_u32 s,
                             bool distinct, const BsNetwork& network, BsLanes* picks) {
  BsLanes words[4], uneven{};
  for (bs_u32 t = 0; t < s; ++t) {
    if ((t & 3u) == 0) bs_block_lanes(seed, tag, vertex, minibatch, t >> 2, words);
    BsLanes pick, last;  // draw t is uniform in 0 .. last
    for (int l = 0; l < LANES; ++l) {
      last.v[l] = degree.v[l] - (distinct ? s - t : 1u);
      const bs_u64 product = (bs_u64)words[t & 3u].v[l] * (last.v[l] + 1u);
      pick.v[l] = (bs_u32)(product >> 32);
      uneven.v[l] |= (bs_u32)product <= last.v[l] ? 1u : 0u;
    }
    if (distinct) {
      BsLanes taken{};
      for (bs_u32 u = 0; u < t; ++u)
        for (int l = 0; l < LANES; ++l) taken.v[l] |= picks[u].v[l] == pick.v[l] ? 1u : 0u;
      for (int l = 0; l < LANES; ++l) pick.v[l] = taken.v[l] ? last.v[l] : pick.v[l];
    }
    picks[t] = pick;
  }
  network.sort(picks);
  bs_u32 any = 0;
  for (int l = 0; l < LANES; ++l) any |= uneven.v[l];
  return any == 0;
}
