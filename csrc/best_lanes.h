// The s <= 32 best of many candidates, kept in the lanes of a warp: 32 are sorted and merged into those kept, and a chunk without a small
// enough key is skipped.
#pragma once
#include "hubs.h"
#include "ranked_keys.h"

struct Candidate {
  double key;
  bs_i32 column;
};

constexpr bs_i32 NO_COLUMN = 0x7FFFFFFF;

// One step of a sorting network over the lanes: lane i meets lane i ^ mask, and the lower of both keeps the one that comes first.
template <class Before>
__device__ __forceinline__ void meet(Candidate& own, bs_i32 mask, Before before) {
  const Candidate other{__shfl_xor_sync(BS_ALL, own.key, mask), __shfl_xor_sync(BS_ALL, own.column, mask)};
  const bool lower = bs_lane() < (bs_lane() ^ mask);
  if (before(lower ? other : own, lower ? own : other)) own = other;
}

template <class Before>
__device__ __forceinline__ void sort_lanes(Candidate& own, Before before) {
#pragma unroll
  for (bs_i32 size = 2; size <= 32; size *= 2) {
    meet(own, size - 1, before);
#pragma unroll
    for (bs_i32 apart = size / 4; apart > 0; apart /= 2) meet(own, apart, before);
  }
}

// The first 32 of two sorted warps of candidates, sorted.
template <class Before>
__device__ __forceinline__ void merge_lanes(Candidate& kept, const Candidate& fresh, Before before) {
  const Candidate turned{__shfl_xor_sync(BS_ALL, fresh.key, 31), __shfl_xor_sync(BS_ALL, fresh.column, 31)};
  if (before(turned, kept)) kept = turned;
#pragma unroll
  for (bs_i32 apart = 16; apart > 0; apart /= 2) meet(kept, apart, before);
}

__device__ __forceinline__ bool by_key(const Candidate& a, const Candidate& b) { return bs_before(a.key, a.column, b.key, b.column); }
__device__ __forceinline__ bool by_column(const Candidate& a, const Candidate& b) { return a.column < b.column; }

// Keeps the best s of those kept and 32 more, all sorted.
__device__ __forceinline__ void keep_best(Candidate& kept, Candidate fresh, bs_i32 s, bool sorted) {
  if (!__ballot_sync(BS_ALL, fresh.key <= __shfl_sync(BS_ALL, kept.key, s - 1) && fresh.column != NO_COLUMN)) return;
  if (!sorted) sort_lanes(fresh, by_key);
  merge_lanes(kept, fresh, by_key);
}

// The best s of the candidates from .. to - 1, sorted; candidate(at) is one, of column NO_COLUMN if it has no weight.
template <class CandidateAt>
__device__ __forceinline__ Candidate best_among(bs_i64 from, bs_i64 to, bs_i32 s, CandidateAt candidate) {
  Candidate kept{no_key(), NO_COLUMN};
  for (bs_i64 first = from; first < to && s > 0; first += 32) {
    const bs_i64 at = first + bs_lane();
    keep_best(kept, at < to ? candidate(at) : Candidate{no_key(), NO_COLUMN}, s, false);
  }
  return kept;
}

// Sorts the best s by their columns: lane i holds the i-th, or NO_COLUMN.
__device__ __forceinline__ bs_i32 sorted_column(Candidate kept, bs_i32 s) {
  if (bs_lane() >= s) kept.column = NO_COLUMN;
  sort_lanes(kept, by_column);
  return kept.column;
}

// Leaves the best 32 of slice `item` of a listed hub in `keys` and `found`. True for the warp that ends the last slice of its row, which gets
// the best s of all.
__device__ __forceinline__ bool best_of_slices(Hubs* hubs, bs_i64 item, bs_i32 s, Candidate& best, double* keys, bs_i32* found) {
  const bs_i64 hub = item / BS_SLICES;
  bs_store(&keys[32 * item + bs_lane()], best.key);
  bs_store(&found[32 * item + bs_lane()], best.column);
  __threadfence();
  __syncwarp();
  if (!__ballot_sync(BS_ALL, bs_lane() == 0 && atomicAdd(&hubs->done[hub], 1ull) == BS_SLICES - 1)) return false;
  __threadfence();
  best = Candidate{no_key(), NO_COLUMN};
  for (bs_i64 other = hub * BS_SLICES; other < (hub + 1) * BS_SLICES && s > 0; ++other)
    keep_best(best, Candidate{bs_load(&keys[32 * other + bs_lane()]), bs_load(&found[32 * other + bs_lane()])}, s, true);
  return true;
}
