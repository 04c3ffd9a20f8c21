// Slots by sorting: equal (minibatch, vertex) come to lie side by side, and their slot is the number of distinct ones before. The place
// of a vertex stands in the low bits of its word, so the words are all that moves.
// The sort takes 8 bits a pass, the lowest first. A warp takes 2048 words in their order, so a pass keeps the order of equal digits.
#include "device.h"

constexpr bs_i32 DIGITS = 256;
constexpr bs_i64 SORT_TILE = 2048;
constexpr bs_i32 WARPS = BS_BLOCK / 32;

// (j n + v) << places | i for the vertices i that are held, of `held` places, and for those found after them; k n at places without one.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) pack_words(const bs_i64* __restrict__ known_pointers, const bs_i32* __restrict__ known,
                                                                  bs_i64 held, const bs_i64* __restrict__ pointers,
                                                                  const bs_i32* __restrict__ found, bs_i64 room, bs_i64 k, bs_i64 n,
                                                                  bs_i32 places, bs_u64* __restrict__ words) {
  for (bs_i64 i = bs_thread(); i < held + room; i += bs_threads()) {
    const bs_i64 at = i < held ? i : i - held;
    const bs_i64* own = i < held ? known_pointers : pointers;
    const bs_i64 key = at < own[k] ? bs_row_of(own, k, at) * n + (i < held ? known : found)[at] : k * n;
    words[i] = (bs_u64)key << places | (bs_u64)i;
  }
}

// counts[d * tiles + t]: words of tile t whose digit is d.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) count_digits(const bs_u64* __restrict__ words, bs_i64 n, bs_i32 shift, bs_i64 tiles,
                                                                    bs_i32* __restrict__ counts) {
  __shared__ bs_i32 held[WARPS * DIGITS];
  bs_i32* own = held + threadIdx.x / 32 * DIGITS;
  for (bs_i64 tile = bs_thread() / 32; tile < tiles; tile += bs_threads() / 32) {
    for (bs_i32 d = bs_lane(); d < DIGITS; d += 32) own[d] = 0;
    __syncwarp();
    const bs_i64 last = (tile + 1) * SORT_TILE < n ? (tile + 1) * SORT_TILE : n;
    for (bs_i64 i = tile * SORT_TILE + bs_lane(); i < last; i += 32) atomicAdd(&own[words[i] >> shift & (DIGITS - 1)], 1);
    __syncwarp();
    for (bs_i32 d = bs_lane(); d < DIGITS; d += 32) counts[d * tiles + tile] = own[d];
    __syncwarp();
  }
}

// Moves each word behind those of a smaller digit, and of its own digit in earlier places; pointers are the sums of the counts.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) move_words(const bs_u64* __restrict__ words, bs_i64 n, bs_i32 shift, bs_i64 tiles,
                                                                  const bs_i64* __restrict__ pointers, bs_u64* __restrict__ out) {
  __shared__ bs_i64 next[WARPS * DIGITS];
  bs_i64* own = next + threadIdx.x / 32 * DIGITS;
  for (bs_i64 tile = bs_thread() / 32; tile < tiles; tile += bs_threads() / 32) {
    for (bs_i32 d = bs_lane(); d < DIGITS; d += 32) own[d] = pointers[d * tiles + tile];
    __syncwarp();
    const bs_i64 last = (tile + 1) * SORT_TILE < n ? (tile + 1) * SORT_TILE : n;
    for (bs_i64 first = tile * SORT_TILE; first < last; first += 32) {
      const bool there = first + bs_lane() < last;
      const bs_u64 word = there ? words[first + bs_lane()] : 0;
      const bs_u32 digit = (bs_u32)(word >> shift) & (DIGITS - 1);
      bs_u32 peers = __ballot_sync(BS_ALL, there);  // lanes of the same digit
#pragma unroll
      for (bs_i32 b = 0; b < 8; ++b) {
        const bs_u32 votes = __ballot_sync(BS_ALL, digit >> b & 1u);
        peers &= digit >> b & 1u ? votes : ~votes;
      }
      const bs_i32 before = __popc(peers & ((1u << bs_lane()) - 1u));
      if (there) out[own[digit] + before] = word;
      __syncwarp();
      if (there && before == 0) own[digit] += __popc(peers);
      __syncwarp();
    }
  }
}

// 1 where a key is not that of the word before.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) mark_keys(const bs_u64* __restrict__ words, bs_i64 count, bs_i32 places,
                                                                 bs_i32* __restrict__ marks) {
  for (bs_i64 i = bs_thread(); i < count; i += bs_threads()) marks[i] = i == 0 || words[i] >> places != words[i - 1] >> places;
}

extern "C" __global__ void __launch_bounds__(BS_BLOCK) spread_slots(const bs_u64* __restrict__ words, bs_i64 count, bs_i32 places,
                                                                    const bs_i64* __restrict__ ranks, bs_i64* __restrict__ slots) {
  const bs_u64 low = ((bs_u64)1 << places) - 1;
  for (bs_i64 i = bs_thread(); i < count; i += bs_threads()) slots[words[i] & low] = ranks[i + 1] - 1;
}
