// Entries that are kept, counted in one pass (look_back.h): a bit for each entry of a tile, and the number of those kept before it.
#pragma once
#include "look_back.h"

constexpr bs_i32 BS_WORDS = 64;                      // of votes, one for 32 entries
constexpr bs_i64 BS_VOTES = 32 * (bs_i64)BS_WORDS;  // entries of a tile

// Shared memory of a block that votes.
struct Votes {
  bs_u32 words[BS_WORDS];
  bs_i32 before[BS_WORDS];  // set bits in the words before each
  bs_i64 earlier;           // in the tiles before
};

// Sets the bit of each entry first .. last - 1 for which kept(entry) is true, and counts those of all tiles before. `states`: a word for each
// tile. Barriers for all threads of the block.
template <class Kept>
__device__ __forceinline__ void bs_vote(Votes& votes, bs_u64* states, bs_i64 tile, bs_i64 last, Kept kept) {
  for (bs_i32 w = (bs_i32)threadIdx.x / 32; w < BS_WORDS; w += BS_BLOCK / 32) {
    const bs_i64 at = tile * BS_VOTES + 32 * w + bs_lane();
    const bs_u32 vote = __ballot_sync(BS_ALL, at < last && kept(at));
    if (bs_lane() == 0) votes.words[w] = vote;
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    const bs_i32 w = 2 * bs_lane(), even = __popc(votes.words[w]), odd = __popc(votes.words[w + 1]);
    bs_i32 all;
    votes.before[w] = bs_warp_before(even + odd, &all);
    votes.before[w + 1] = votes.before[w] + even;
    const bs_i64 earlier = bs_look_back(states, tile, all);
    if (threadIdx.x == 0) votes.earlier = earlier;
  }
  __syncthreads();
}

// The number of entries kept before entry `at` of the tile that begins at `first`.
__device__ __forceinline__ bs_i64 bs_kept_before(const Votes& votes, bs_i64 first, bs_i64 at) {
  const bs_i32 word = (bs_i32)(at - first) / 32, bit = (bs_i32)(at - first) % 32;
  return votes.earlier + votes.before[word] + __popc(votes.words[word] & ((1u << bit) - 1u));
}

// Calls visit(entry, number of those kept before it) for each kept entry of the tile that begins at `first`.
template <class Visit>
__device__ __forceinline__ void bs_visit_kept(const Votes& votes, bs_i64 first, Visit visit) {
  for (bs_i32 w = (bs_i32)threadIdx.x / 32; w < BS_WORDS; w += BS_BLOCK / 32) {
    const bs_i64 at = first + 32 * w + bs_lane();
    if (votes.words[w] >> bs_lane() & 1u) visit(at, bs_kept_before(votes, first, at));
  }
}
