// Sets of numbers that a whole block works on: sort them, or enter them into a hash table.
#pragma once
#include "device.h"
#include "uniform_row.h"

// Sorts n numbers by the whole block. Merges start in the middle, so missing numbers count as the largest, and n need not be a power
// of two.
template <int THREADS = BS_BLOCK>
__device__ __forceinline__ void sort_block(bs_u32* numbers, bs_u32 n) {
  auto order = [&](bs_u32 i, bs_u32 j) {
    if (j >= n || numbers[i] <= numbers[j]) return;
    const bs_u32 larger = numbers[i];
    numbers[i] = numbers[j];
    numbers[j] = larger;
  };
  for (bs_u32 size = 2; size < 2 * n; size *= 2) {
    for (bs_u32 i = threadIdx.x; i < n; i += THREADS)
      if ((i & (size - 1)) < size / 2) order(i, i ^ (size - 1));
    __syncthreads();
    for (bs_u32 apart = size / 4; apart > 0; apart /= 2) {
      for (bs_u32 i = threadIdx.x; i < n; i += THREADS)
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

// Draws s positions of a row of `degree` by the whole block, in any order: Floyd's, or independent ones (`repeated`). `table` has room for
// 2^bits positions, 2^bits draws that took them first, and s picks; 2^bits >= 2 s.
__device__ __forceinline__ void draw_block(const BsStream& stream, bs_u32 degree, bs_u32 s, bool repeated, bs_u32* table, bs_i32 bits,
                                           bs_u32* out) {
  bs_u32 *first = table + (1ll << bits), *picks = first + (1ll << bits);
  for (bs_u32 t = threadIdx.x; t < s; t += BS_BLOCK)
    picks[t] = bs_bounded(stream, t, bs_block(stream, t >> 2).v[t & 3u], repeated ? degree : degree - s + t + 1u);
  if (!repeated)
    for (bs_u32 i = threadIdx.x; i < 2u << bits; i += BS_BLOCK) table[i] = 0xFFFFFFFFu;
  __syncthreads();
  if (!repeated)
    for (bs_u32 t = threadIdx.x; t < s; t += BS_BLOCK) atomicMin(&first[slot_of(table, bits, picks[t])], t);
  __syncthreads();
  // The position of draw t is taken if an earlier draw took it too, or if it is the j = d - s + u that an earlier draw u fell back
  // to: walk back through such draws.
  for (bs_u32 t = threadIdx.x; t < s; t += BS_BLOCK) {
    bool taken = false;
    for (bs_u32 u = t; !repeated; u = picks[u] - (degree - s)) {
      taken = first[slot_of(table, bits, picks[u])] < u;
      if (taken || picks[u] < degree - s || picks[u] - (degree - s) >= u) break;
    }
    out[t] = taken ? degree - s + t : picks[t];
  }
}
