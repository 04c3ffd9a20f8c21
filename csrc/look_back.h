// Prefix sums in one pass over tiles, by decoupled look-back: a block publishes the sum of its tile, adds up what the tiles before it have
// published, and publishes the sum of all up to its own. (Merrill and Garland, "Single-pass parallel prefix scan with decoupled
// look-back", 2016.)
//
// Tiles are numbered in the order in which blocks ask for them, by a ticket. So a block waits only for tiles that blocks which already run
// have taken, whatever the order in which a device starts blocks. A wait that lasts some ten seconds is a fault, and ends the kernel.
#pragma once
#include "device.h"

// What is known of a tile, in one word: nothing (0), its own sum, or the sum of all tiles up to it; sums are below 2^62.
constexpr bs_u64 BS_OWN_SUM = 1ull << 62, BS_SUM_SO_FAR = 1ull << 63, BS_SUM = BS_OWN_SUM - 1;

// The next tile; `place` is shared. A barrier for all threads of the block.
__device__ __forceinline__ bs_i64 bs_next_tile(bs_u64* ticket, bs_i64* place) {
  __syncthreads();
  if (threadIdx.x == 0) *place = (bs_i64)atomicAdd(ticket, 1ull);
  __syncthreads();
  return *place;
}

// The word at `at`, once ready(word) is true.
template <class Word, class Ready>
__device__ __forceinline__ Word bs_wait_until(const Word* at, Ready ready) {
  Word word;
#if defined(BS_EMULATED)
  while (!ready(word = bs_load(at))) {
  }
#else
  const long long began = clock64();
  while (!ready(word = bs_load(at)))
    if (clock64() - began > 20000000000ll) __trap();
#endif
  return word;
}

// The word at `at`, once one of its bits in `known` is set.
__device__ __forceinline__ bs_u64 bs_wait(const bs_u64* at, bs_u64 known = ~0ull) {
  return bs_wait_until(at, [=](bs_u64 word) { return (word & known) != 0; });
}

// The same for a whole block, which then sees what was there before the word was set (`bs_publish`); `told` is shared.
__device__ __forceinline__ bs_u64 bs_wait_for(const bs_u64* at, bs_u64* told) {
  __syncthreads();
  if (threadIdx.x == 0) {
    *told = bs_wait(at);
    bs_acquired(at);
  }
  __syncthreads();
  __threadfence();
  return *told;
}

// The word at `at`, once it is less than `bound`.
__device__ __forceinline__ bs_u32 bs_wait_below(const bs_u32* at, bs_u32 bound) {
  return bs_wait_until(at, [=](bs_u32 word) { return word < bound; });
}

// The sum of all tiles up to this one, by a thread of a block with a later ticket.
__device__ __forceinline__ bs_i64 bs_sum_up_to(const bs_u64* states, bs_i64 tile) {
  return (bs_i64)(bs_wait(&states[tile], BS_SUM_SO_FAR) & BS_SUM);
}

// The sum of all tiles before this one, whose sum is `own`; called by the first warp of a block.
__device__ __forceinline__ bs_i64 bs_look_back(bs_u64* states, bs_i64 tile, bs_i64 own) {
  const bs_i32 lane = bs_lane();
  if (lane == 0 && tile > 0) bs_store(&states[tile], BS_OWN_SUM | (bs_u64)own);
  bs_i64 earlier = 0;
  for (bs_i64 last = tile - 1; last >= 0; last -= 32) {
    const bs_u64 word = last >= lane ? bs_wait(&states[last - lane]) : BS_SUM_SO_FAR;
    const bs_u32 complete = __ballot_sync(BS_ALL, (word & BS_SUM_SO_FAR) != 0);
    const bs_i32 nearest = complete ? __ffs((int)complete) - 1 : 31;
    bs_i64 all;
    bs_warp_before(lane <= nearest ? (bs_i64)(word & BS_SUM) : (bs_i64)0, &all);
    earlier += all;
    if (complete) break;
  }
  if (lane == 0) bs_store(&states[tile], BS_SUM_SO_FAR | (bs_u64)(earlier + own));
  return earlier;
}
