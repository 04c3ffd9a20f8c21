// Slots by rank in a bitmap: vertex v of minibatch j is bit j n + v, and its slot is the number of bits set before it. So the distinct
// vertices have the slots 0, 1, 2, .., whatever n is. 256 bits, the 32 bytes that memory moves at once, are counted together.
#include "device.h"

constexpr bs_i64 GROUP = 4;  // words that are counted together

// Sets the bit of each vertex. Minibatch j has pointers[j] .. pointers[j + 1] - 1.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) mark_bits(const bs_i64* __restrict__ pointers, const bs_i32* __restrict__ vertices,
                                                                 bs_i64 k, bs_i64 n, bs_u64* bits) {
  const bs_i64 count = pointers[k];
  for (bs_i64 i = bs_thread(); i < count; i += bs_threads()) {
    const bs_i64 bit = bs_row_of(pointers, k, i) * n + vertices[i];
    atomicOr(&bits[bit >> 6], (bs_u64)1 << (bit & 63));
  }
}

extern "C" __global__ void __launch_bounds__(BS_BLOCK) count_bits(const bs_u64* __restrict__ bits, bs_i64 groups,
                                                                  bs_i32* __restrict__ counts) {
  for (bs_i64 g = bs_thread(); g < groups; g += bs_threads()) {
    bs_i32 set = 0;
#pragma unroll
    for (bs_i64 w = 0; w < GROUP; ++w) set += __popcll(bits[g * GROUP + w]);
    counts[g] = set;
  }
}

// The slot of each vertex; ranks[g] bits are set before group g.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) rank_bits(const bs_i64* __restrict__ pointers, const bs_i32* __restrict__ vertices,
                                                                 bs_i64 k, bs_i64 n, const bs_u64* __restrict__ bits,
                                                                 const bs_i64* __restrict__ ranks, bs_i64* __restrict__ slots) {
  const bs_i64 count = pointers[k];
  for (bs_i64 i = bs_thread(); i < count; i += bs_threads()) {
    const bs_i64 bit = bs_row_of(pointers, k, i) * n + vertices[i], word = bit >> 6, group = word / GROUP;
    bs_i64 slot = ranks[group] + __popcll(bits[word] & (((bs_u64)1 << (bit & 63)) - 1));
    for (bs_i64 w = group * GROUP; w < word; ++w) slot += __popcll(bits[w]);
    slots[i] = slot;
  }
}
