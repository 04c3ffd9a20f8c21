// Prefix sums of counts in one pass over tiles (look_back.h).
#pragma once
#include "look_back.h"

constexpr int SCAN_EACH = 16;  // counts of a thread
constexpr bs_i64 SCAN_TILE = (bs_i64)SCAN_EACH * BS_BLOCK;

// Shared memory of a block that scans.
struct Scan {
  bs_i64 sums[BS_BLOCK / 32], place, before_tile;
};

// Writes n + 1 pointers, and calls written(first) after those of each tile, which begins at `first`. Warps read and write neighbouring
// entries, 16 times each lane. `states`: a ticket, and a word for each tile, all 0. Returns the tile that this block took in vain.
template <class Count, class Written>
__device__ __forceinline__ bs_i64 scan_tiles(bs_i64 n, bs_u64* states, bs_i64* pointers, Scan& shared, Count count, Written written) {
  for (;;) {
    const bs_i64 tile = bs_next_tile(states, &shared.place), first = tile * SCAN_TILE;
    if (first > n) return tile;
    bs_i32 own[SCAN_EACH];
    bs_i64 sum = 0, all;
#pragma unroll
    for (int i = 0; i < SCAN_EACH; ++i) {
      const bs_i64 at = first + i * BS_BLOCK + threadIdx.x;
      own[i] = at < n ? count(at) : 0;
      sum += own[i];
    }
    bs_block_before(sum, shared.sums, &all);
    if (threadIdx.x < 32) {
      const bs_i64 earlier = bs_look_back(states + 1, tile, all);
      if (threadIdx.x == 0) shared.before_tile = earlier;
    }
    __syncthreads();
    bs_i64 earlier = shared.before_tile;
#pragma unroll
    for (int i = 0; i < SCAN_EACH; ++i) {
      const bs_i64 at = first + i * BS_BLOCK + threadIdx.x;
      const bs_i64 before = bs_block_before((bs_i64)own[i], shared.sums, &all);
      if (at <= n) pointers[at] = earlier + before;
      earlier += all;
    }
    written(first);
  }
}

// Calls visit(j) for each row j <= rows that begins in the tile at `first`, the end of the last one included.
template <class Visit>
__device__ __forceinline__ void visit_rows_begun(const bs_i64* parts, bs_i64 rows, bs_i64 first, Visit visit) {
  const bs_i64 here = first > 0 ? bs_row_of(parts, rows + 1, first - 1) + 1 : 0;
  for (bs_i64 j = here + threadIdx.x; j <= rows && parts[j] < first + SCAN_TILE; j += BS_BLOCK) visit(j);
}
