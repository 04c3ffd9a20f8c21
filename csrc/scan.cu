// Prefix sums: counts of rows become row pointers, pointers[i] = sum of counts[0 .. i - 1].
// A block sums a tile of 16 counts a thread; one block sums the tiles; then each tile writes its pointers.
#include "device.h"

constexpr int EACH = 16;
constexpr bs_i64 SCAN_TILE = (bs_i64)EACH * BS_BLOCK;

extern "C" __global__ void __launch_bounds__(BS_BLOCK) scan_tiles(const bs_i32* __restrict__ counts, bs_i64 n, bs_i64* __restrict__ tiles) {
  __shared__ bs_i64 sums[BS_BLOCK / 32];
  bs_i64 sum = 0, all;
  for (int i = 0; i < EACH; ++i) {
    const bs_i64 at = blockIdx.x * SCAN_TILE + i * BS_BLOCK + threadIdx.x;
    if (at < n) sum += counts[at];
  }
  bs_block_before(sum, sums, &all);
  if (threadIdx.x == 0) tiles[blockIdx.x] = all;
}

// One block: the sums of the tiles, in place.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) scan_sums(bs_i64* __restrict__ tiles, bs_i64 n) {
  __shared__ bs_i64 sums[BS_BLOCK / 32];
  bs_i64 earlier = 0;
  for (bs_i64 first = 0; first < n; first += BS_BLOCK) {
    const bs_i64 at = first + threadIdx.x;
    bs_i64 all;
    const bs_i64 before = bs_block_before(at < n ? tiles[at] : (bs_i64)0, sums, &all);
    if (at < n) tiles[at] = earlier + before;
    earlier += all;
  }
}

// Warps read and write neighbouring entries, 16 times each lane.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) scan_pointers(const bs_i32* __restrict__ counts, bs_i64 n,
                                                                     const bs_i64* __restrict__ tiles, bs_i64* __restrict__ pointers) {
  __shared__ bs_i64 sums[BS_BLOCK / 32];
  bs_i64 earlier = tiles[blockIdx.x];
  for (int i = 0; i < EACH; ++i) {
    const bs_i64 at = blockIdx.x * SCAN_TILE + i * BS_BLOCK + threadIdx.x;
    bs_i64 all;
    const bs_i64 before = bs_block_before(at < n ? (bs_i64)counts[at] : 0, sums, &all);
    if (at < n) pointers[at] = earlier + before;
    if (at == n) pointers[n] = earlier + before;
    earlier += all;
  }
}
