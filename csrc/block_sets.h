// Sets of numbers that a whole block works on: sort them, or enter them into a hash table.
#pragma once
#include "device.h"

// Sorts n numbers by the whole block. Merges start in the middle, so missing numbers count as the largest, and n need not be a power
// of two.
__device__ __forceinline__ void sort_block(bs_u32* numbers, bs_u32 n) {
  auto order = [&](bs_u32 i, bs_u32 j) {
    if (j >= n || numbers[i] <= numbers[j]) return;
    const bs_u32 larger = numbers[i];
    numbers[i] = numbers[j];
    numbers[j] = larger;
  };
  for (bs_u32 size = 2; size < 2 * n; size *= 2) {
    for (bs_u32 i = threadIdx.x; i < n; i += BS_BLOCK)
      if ((i & (size - 1)) < size / 2) order(i, i ^ (size - 1));
    __syncthreads();
    for (bs_u32 apart = size / 4; apart > 0; apart /= 2) {
      for (bs_u32 i = threadIdx.x; i < n; i += BS_BLOCK)
        if ((i & apart) == 0) order(i, i + apart);
      __syncthreads();
    }
  }
}

// The slot of a position in a table of 2^bits, entered if it is new.
__device__ __forceinline__ bs_u32 slot_of(bs_u32* table, int bits, bs_u32 position) {
  const bs_u32 mask = (1u << bits) - 1u;
  for (bs_u32 at = position * 0x9E3779B9u >> (32 - bits);; at = (at + 1) & mask) {
    const bs_u32 before = atomicCAS(&table[at], 0xFFFFFFFFu, position);
    if (before == 0xFFFFFFFFu || before == position) return at;
  }
}
