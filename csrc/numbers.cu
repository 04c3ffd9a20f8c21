// Numbers the vertices of each minibatch in order of first occurrence, with all threads at once.
// A slot holds the number of its vertex, below 2^31, or 2^31 + the smallest place at which a new vertex was found. So a minimum
// settles every race, and known vertices win. In a hash table `numbers` begins a word behind `table`, so a place serves for both. First occurrences are then counted, and take the next numbers, in one pass (look_back.h).
#include "look_back.h"
#include "table.h"

constexpr bs_u32 NEW = 0x80000000u;

// The slot of found vertex i of minibatch j: kept from `enter_found`, or in a direct table computed again.
__device__ __forceinline__ bs_i64 slot_of(const bs_i64* slots, const bs_i64* starts, const bs_i32* found, bs_i64 j, bs_i64 i) {
  return slots ? slots[i] : starts[j] + found[i];
}

// Known vertices take their places as numbers.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) enter_known(const bs_i64* __restrict__ pointers, const bs_i32* __restrict__ known,
                                                                   bs_i64 k, bs_u32* table, const bs_i64* __restrict__ starts,
                                                                   bs_u32* numbers) {
  const bs_i64 count = pointers[k];
  for (bs_i64 i = bs_thread(); i < count; i += bs_threads()) {
    const bs_i64 j = bs_row_of(pointers, k, i);
    numbers[bs_slot<BS_NUMBERED>(table, starts, j, (bs_u32)known[i])] = (bs_u32)(i - pointers[j]);
  }
}

// Finds the slot of each vertex found, and enters its first place there. Minibatch j found pointers[j] .. pointers[j + 1] - 1.
// `slots` is null for a direct table.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) enter_found(const bs_i64* __restrict__ pointers, const bs_i32* __restrict__ found,
                                                                   bs_i64 k, bs_u32* table, const bs_i64* __restrict__ starts,
                                                                   bs_u32* numbers, bs_i64* __restrict__ slots) {
  const bs_i64 count = pointers[k];
  for (bs_i64 i = bs_thread(); i < count; i += bs_threads()) {
    const bs_i64 j = bs_row_of(pointers, k, i), slot = bs_slot<BS_NUMBERED>(table, starts, j, (bs_u32)found[i]);
    if (slots) slots[i] = slot;
    atomicMin(&numbers[slot], NEW + (bs_u32)(i - pointers[j]));
  }
}

// out[i] = a[i] + b[i].
extern "C" __global__ void __launch_bounds__(BS_BLOCK) add_pointers(const bs_i64* __restrict__ a, const bs_i64* __restrict__ b,
                                                                    bs_i64 count, bs_i64* __restrict__ out) {
  for (bs_i64 i = bs_thread(); i < count; i += bs_threads()) out[i] = a[i] + b[i];
}

constexpr bs_i32 WORDS = 64;                 // of votes, one for 32 places
constexpr bs_i64 TILE = 32 * (bs_i64)WORDS;  // places of a tile

// The votes of a tile of places: a bit is set at the first place of a new vertex.
struct Votes {
  bs_u32 words[WORDS];
  bs_i32 before[WORDS];  // set bits in the words before each
  bs_i64 earlier;        // in the tiles before
};

// The number of new vertices before a place of the tile that begins at `first`.
__device__ __forceinline__ bs_i64 rank_at(const Votes& votes, bs_i64 first, bs_i64 at) {
  const bs_i32 word = (bs_i32)(at - first) / 32, bit = (bs_i32)(at - first) % 32;
  return votes.earlier + votes.before[word] + __popc(votes.words[word] & ((1u << bit) - 1u));
}

// Numbers the new vertices, in the order of their first places, and appends them to the known ones. Writes ends[j], the known and the new
// vertices of the minibatches before j; after these k + 1 the number of vertices found before each. Other blocks may meet the numbers:
// they read either first places or numbers, and neither is the place that they ask for. `states`, all 0: a ticket, k + 1 words for the new
// vertices before each minibatch, plus one, and a word for each tile.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) number_found(const bs_i64* __restrict__ known, const bs_i64* __restrict__ pointers,
                                                                    const bs_i32* __restrict__ found, bs_i64 k,
                                                                    const bs_i64* __restrict__ slots, const bs_i64* __restrict__ starts,
                                                                    bs_u32* numbers, bs_u64* states, bs_i64* __restrict__ ends,
                                                                    bs_i32* __restrict__ vertices) {
  __shared__ Votes votes;
  __shared__ bs_i64 place, before_first;
  bs_u64 *begun = states + 1, *sums = begun + k + 1;
  const bs_i64 count = pointers[k];
  for (;;) {
    const bs_i64 tile = bs_next_tile(states, &place), first = tile * TILE, last = first + TILE < count ? first + TILE : count;
    if (first > count) return;
    const bs_i64 j_first = bs_row_of(pointers, k, first), of_tile = first < last ? bs_row_of(pointers, k, last - 1) - j_first + 1 : 1;
    for (bs_i32 w = (bs_i32)threadIdx.x / 32; w < WORDS; w += BS_BLOCK / 32) {
      const bs_i64 i = first + 32 * w + bs_lane();
      const bs_i64 j = i < last ? j_first + bs_row_of(pointers + j_first, of_tile, i) : 0;
      const bool is_new = i < last && bs_load(&numbers[slot_of(slots, starts, found, j, i)]) == NEW + (bs_u32)(i - pointers[j]);
      const bs_u32 vote = __ballot_sync(BS_ALL, is_new);
      if (bs_lane() == 0) votes.words[w] = vote;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
      const bs_i32 w = 2 * bs_lane(), even = __popc(votes.words[w]), odd = __popc(votes.words[w + 1]);
      bs_i32 all;
      votes.before[w] = bs_warp_before(even + odd, &all);
      votes.before[w + 1] = votes.before[w] + even;
      const bs_i64 earlier = bs_look_back(sums, tile, all);
      if (threadIdx.x == 0) votes.earlier = earlier;
    }
    __syncthreads();
    const bs_i64 j_here = first > 0 ? bs_row_of(pointers, k + 1, first - 1) + 1 : 0;  // the first minibatch that begins in the tile
    for (bs_i64 j = j_here + threadIdx.x; j <= k && pointers[j] < first + TILE; j += BS_BLOCK) {
      const bs_i64 rank = rank_at(votes, first, pointers[j]);
      ends[j] = known[j] + rank;
      ends[k + 1 + j] = pointers[j];
      bs_store(&begun[j], (bs_u64)rank + 1);
    }
    if (threadIdx.x == 0 && first < last)
      before_first = pointers[j_first] < first ? (bs_i64)bs_wait(&begun[j_first]) - 1 : rank_at(votes, first, pointers[j_first]);
    __syncthreads();
    for (bs_i32 w = (bs_i32)threadIdx.x / 32; w < WORDS; w += BS_BLOCK / 32) {
      const bs_i64 i = first + 32 * w + bs_lane();
      if (!(votes.words[w] >> bs_lane() & 1u)) continue;
      const bs_i64 j = j_first + bs_row_of(pointers + j_first, of_tile, i), rank = rank_at(votes, first, i);
      const bs_i64 begin = j == j_first ? before_first : rank_at(votes, first, pointers[j]);
      bs_store(&numbers[slot_of(slots, starts, found, j, i)], (bs_u32)(known[j + 1] - known[j] + rank - begin));
      vertices[known[j + 1] + rank] = found[i];
    }
  }
}

// Copies the known vertices to their places in front of the new ones, and reads the number of each vertex found.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) read_numbers(const bs_i64* __restrict__ known_pointers,
                                                                    const bs_i32* __restrict__ known, const bs_i64* __restrict__ pointers,
                                                                    const bs_i32* __restrict__ found, bs_i64 k,
                                                                    const bs_i64* __restrict__ slots, const bs_i64* __restrict__ starts,
                                                                    const bs_u32* __restrict__ numbers, const bs_i64* __restrict__ ends,
                                                                    bs_i32* __restrict__ vertices, bs_i32* __restrict__ local) {
  for (bs_i64 i = bs_thread(); i < known_pointers[k]; i += bs_threads()) {
    const bs_i64 j = bs_row_of(known_pointers, k, i);
    vertices[ends[j] + i - known_pointers[j]] = known[i];
  }
  for (bs_i64 i = bs_thread(); i < pointers[k]; i += bs_threads())
    local[i] = (bs_i32)numbers[slot_of(slots, starts, found, slots ? 0 : bs_row_of(pointers, k, i), i)];
}

// out[i] = pointers[at[i]]: the first entry of the rows of each minibatch.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) pick_pointers(const bs_i64* __restrict__ pointers, const bs_i64* __restrict__ at,
                                                                     bs_i64 count, bs_i64* __restrict__ out) {
  for (bs_i64 i = bs_thread(); i < count; i += bs_threads()) out[i] = pointers[at[i]];
}

// Keeps the vertices of each minibatch beyond the first ones, which `known` counts, and makes their row pointers.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) drop_known(const bs_i64* __restrict__ known, const bs_i64* __restrict__ ends, bs_i64 k,
                                                                  const bs_i32* __restrict__ vertices, bs_i64* __restrict__ pointers,
                                                                  bs_i32* __restrict__ fresh) {
  const bs_i64 count = ends[k];
  for (bs_i64 j = bs_thread(); j <= k; j += bs_threads()) pointers[j] = ends[j] - known[j];
  for (bs_i64 i = bs_thread(); i < count; i += bs_threads()) {
    const bs_i64 j = bs_row_of(ends, k, i), held = known[j + 1] - known[j];
    if (i - ends[j] >= held) fresh[i - known[j + 1]] = vertices[i];
  }
}
