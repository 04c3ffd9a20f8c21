// Keys of the race as words that order as the keys do, and the word of a given rank, which a block finds.
#pragma once
#include "device.h"
#include "race_row.h"

constexpr bs_u64 NO_BITS = 0xFFFFFFFFFFFFFFFFull;  // of a candidate of weight 0, which comes after all

__device__ __forceinline__ double no_key() { return __longlong_as_double(0x7FF0000000000000ll); }  // infinity

__device__ __forceinline__ bs_u64 key_bits(const BsStream& stream, bs_i32 column, double weight) {
  return weight > 0.0 ? (bs_u64)__double_as_longlong(bs_key(stream, (bs_u32)column, weight)) : NO_BITS;
}

// Shared memory of a block that looks for a word.
struct Search {
  bs_u32 bins[256];
  bs_i64 sums[BS_BLOCK / 32], left;
  bs_u32 digit;
};

// The word of rank `rank` among word(begin) .. word(end - 1), of which the lowest `bits` may differ, and how many are below it: eight bits
// at a time, the highest first. A thread looks after two of the 256 bins. A barrier for all threads of the block.
template <class Word>
__device__ __forceinline__ bs_u64 word_of_rank(bs_i64 begin, bs_i64 end, bs_i64 rank, int bits, Search& search, bs_i64* below, Word word) {
  bs_u64 known = 0;
  bs_i64 left = rank;
  for (int shift = bits - 8; shift >= 0; shift -= 8) {
    bs_u32* own = search.bins + 2 * threadIdx.x;
    own[0] = own[1] = 0;
    __syncthreads();
    for (bs_i64 at = begin + threadIdx.x; at < end; at += BS_BLOCK) {
      const bs_u64 found = word(at);
      if (shift == bits - 8 || (found ^ known) >> (shift + 8) == 0) atomicAdd(&search.bins[found >> shift & 255u], 1u);
    }
    __syncthreads();
    bs_i64 all;
    const bs_i64 before = bs_block_before((bs_i64)own[0] + own[1], search.sums, &all);
    if (before <= left && left < before + own[0] + own[1]) {
      const bool second = left >= before + own[0];
      search.digit = 2 * threadIdx.x + second;
      search.left = left - before - (second ? own[0] : 0);
    }
    __syncthreads();
    known |= (bs_u64)search.digit << shift;
    left = search.left;
    __syncthreads();
  }
  *below = rank - left;
  return known;
}
