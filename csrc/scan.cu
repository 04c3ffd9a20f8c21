// Prefix sums: counts of rows become row pointers, pointers[i] = sum of counts[0 .. i - 1], in one pass (look_back.h).
#include "look_back.h"

constexpr int EACH = 16;  // counts of a thread
constexpr bs_i64 SCAN_TILE = (bs_i64)EACH * BS_BLOCK;

// Shared memory of a block that scans.
struct Scan {
  bs_i64 sums[BS_BLOCK / 32], place, before_tile;
};

// Writes n + 1 pointers, and calls written(first) after those of each tile, which begins at `first`. Warps read and write neighbouring
// entries, 16 times each lane. `states`: a ticket, and a word for each tile, all 0.
template <class Count, class Written>
__device__ __forceinline__ void scan_tiles(bs_i64 n, bs_u64* states, bs_i64* pointers, Scan& shared, Count count, Written written) {
  for (;;) {
    const bs_i64 tile = bs_next_tile(states, &shared.place), first = tile * SCAN_TILE;
    if (first > n) return;
    bs_i32 own[EACH];
    bs_i64 sum = 0, all;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
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
    for (int i = 0; i < EACH; ++i) {
      const bs_i64 at = first + i * BS_BLOCK + threadIdx.x;
      const bs_i64 before = bs_block_before((bs_i64)own[i], shared.sums, &all);
      if (at <= n) pointers[at] = earlier + before;
      earlier += all;
    }
    written(first);
  }
}

extern "C" __global__ void __launch_bounds__(BS_BLOCK) scan_counts(const bs_i32* __restrict__ counts, bs_i64 n, bs_u64* states,
                                                                   bs_i64* __restrict__ pointers) {
  __shared__ Scan shared;
  scan_tiles(n, states, pointers, shared, [&](bs_i64 at) { return counts[at]; }, [](bs_i64) {});
}

// The first slot of the hash table of each row: it has a power of two of them, twice what the row can hold, which is at most `most`; none if
// it holds nothing. Row r holds pointers[r + 1] - pointers[r], or what `products` counts for these.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) table_starts(const bs_i64* __restrict__ pointers, const bs_i64* __restrict__ products,
                                                                    bs_i64 rows, bs_i64 most, bs_u64* states,
                                                                    bs_i64* __restrict__ starts) {
  __shared__ Scan shared;
  auto slots = [&](bs_i64 r) {
    const bs_i64 all = products ? products[pointers[r + 1]] - products[pointers[r]] : pointers[r + 1] - pointers[r];
    const bs_i64 held = all < most ? all : most;
    return held ? (bs_i32)(1ll << (64 - bs_leading_zeros((bs_u64)(2 * held - 1)))) : 0;
  };
  scan_tiles(rows, states, starts, shared, slots, [](bs_i64) {});
}

// The row pointers of the picks of parts[k] rows (`parts` may be null: of `room` rows). A row has counts[r] picks; where `counts` is
// null, as many as it has neighbours, at most `most`; with replacement (`repeated`) `most` if it has any. Writes the picks before each
// minibatch to `ends`, k + 1 numbers, unless that is null.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) draw_pointers(const bs_i64* __restrict__ indptr, const bs_i32* __restrict__ vertices,
                                                                     bs_i64 room, const bs_i64* __restrict__ parts, bs_i64 k, bs_i64 most,
                                                                     bs_i32 repeated, const bs_i32* __restrict__ counts, bs_u64* states,
                                                                     bs_i64* pointers, bs_i64* __restrict__ ends) {
  __shared__ Scan shared;
  const bs_i64 rows = parts ? parts[k] : room;
  auto count = [&](bs_i64 r) {
    if (counts) return counts[r];
    const bs_i64 begin = indptr[vertices[r]], degree = indptr[vertices[r] + 1] - begin;
    return (bs_i32)(repeated ? (degree ? most : 0) : (degree < most ? degree : most));
  };
  scan_tiles(rows, states, pointers, shared, count, [&](bs_i64 first) {
    if (!ends) return;
    __syncthreads();
    const bs_i64 j_here = first > 0 ? bs_row_of(parts, k + 1, first - 1) + 1 : 0;  // the first minibatch that begins in the tile
    for (bs_i64 j = j_here + threadIdx.x; j <= k && parts[j] < first + SCAN_TILE; j += BS_BLOCK) ends[j] = pointers[parts[j]];
  });
}
