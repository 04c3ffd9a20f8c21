// Prefix sums: counts of rows become row pointers, pointers[i] = sum of counts[0 .. i - 1], in one pass (look_back.h).
#include "look_back.h"

constexpr int EACH = 16;  // counts of a thread
constexpr bs_i64 SCAN_TILE = (bs_i64)EACH * BS_BLOCK;

// Warps read and write neighbouring entries, 16 times each lane. `states`: a ticket, and a word for each tile, all 0.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) scan_counts(const bs_i32* __restrict__ counts, bs_i64 n, bs_u64* states,
                                                                   bs_i64* __restrict__ pointers) {
  __shared__ bs_i64 sums[BS_BLOCK / 32], place, before_tile;
  for (;;) {
    const bs_i64 tile = bs_next_tile(states, &place), first = tile * SCAN_TILE;
    if (first > n) return;
    bs_i32 own[EACH];
    bs_i64 sum = 0, all;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const bs_i64 at = first + i * BS_BLOCK + threadIdx.x;
      own[i] = at < n ? counts[at] : 0;
      sum += own[i];
    }
    bs_block_before(sum, sums, &all);
    if (threadIdx.x < 32) {
      const bs_i64 earlier = bs_look_back(states + 1, tile, all);
      if (threadIdx.x == 0) before_tile = earlier;
    }
    __syncthreads();
    bs_i64 earlier = before_tile;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const bs_i64 at = first + i * BS_BLOCK + threadIdx.x;
      const bs_i64 before = bs_block_before((bs_i64)own[i], sums, &all);
      if (at <= n) pointers[at] = earlier + before;
      earlier += all;
    }
  }
}
