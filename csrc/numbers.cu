// Numbers the vertices of each minibatch in order of first occurrence, with all threads at once.
// A slot holds the number of its vertex, below 2^31, or 2^31 + the smallest place at which a new vertex was found. So a minimum
// settles every race, and known vertices win. In a hash table `numbers` begins a word behind `table`, so a place serves for both. Then one
// pass (look_back.h) counts the first occurrences, gives them the next numbers, and reads the numbers of all others.
#include "table.h"
#include "votes.h"

// The slot of found vertex i of minibatch j: kept from `enter_found`, or in a direct table computed again.
__device__ __forceinline__ bs_i64 slot_of(const bs_i64* slots, const bs_i64* starts, const bs_i32* found, bs_i64 j, bs_i64 i) {
  return slots ? slots[i] : starts[j] + found[i];
}

// The slot of a vertex of minibatch j; where trees are disjoint, of a tree and its vertex.
__device__ __forceinline__ bs_i64 slot_in(bs_u32* table, const bs_i64* starts, bs_i64 j, const bs_i32* trees, const bs_i32* vertices,
                                          bs_i64 i) {
  return trees ? bs_pair_slot(table, starts, j, trees[i], (bs_u32)vertices[i])
               : bs_slot<BS_NUMBERED>(table, starts, j, (bs_u32)vertices[i]);
}

// Known vertices take their places as numbers. `trees` may be null, here and below.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) enter_known(const bs_i64* __restrict__ pointers, const bs_i32* __restrict__ known,
                                                                   const bs_i32* __restrict__ trees, bs_i64 k, bs_u32* table, const bs_i64* __restrict__ starts,
                                                                   bs_u32* numbers) {
  const bs_i64 count = pointers[k];
  for (bs_i64 i = bs_thread(); i < count; i += bs_threads()) {
    const bs_i64 j = bs_row_of(pointers, k, i);
    numbers[slot_in(table, starts, j, trees, known, i)] = (bs_u32)(i - pointers[j]);
  }
}

// Finds the slot of each vertex found, and enters its first place there. Minibatch j found pointers[j] .. pointers[j + 1] - 1.
// `slots` is null for a direct table.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) enter_found(const bs_i64* __restrict__ pointers, const bs_i32* __restrict__ found,
                                                                   const bs_i32* __restrict__ trees, bs_i64 k, bs_u32* table, const bs_i64* __restrict__ starts,
                                                                   bs_u32* numbers, bs_i64* __restrict__ slots) {
  const bs_i64 count = pointers[k];
  for (bs_i64 i = bs_thread(); i < count; i += bs_threads()) {
    const bs_i64 j = bs_row_of(pointers, k, i);
    bs_enter_place(numbers, slots, slot_in(table, starts, j, trees, found, i), i, pointers[j]);
  }
}

// out[i] = a[i] + b[i].
extern "C" __global__ void __launch_bounds__(BS_BLOCK) add_pointers(const bs_i64* __restrict__ a, const bs_i64* __restrict__ b,
                                                                    bs_i64 count, bs_i64* __restrict__ out) {
  for (bs_i64 i = bs_thread(); i < count; i += bs_threads()) out[i] = a[i] + b[i];
}

// Numbers the new vertices in the order of their first places, appends them to the known ones, which are copied in front of them, and writes the
// number of each vertex found. Writes ends[j], the known and the new vertices of the minibatches before j; after these k + 1 the number of
// vertices found before each. Other blocks may meet the numbers: they read either first places or numbers, and neither is the place that they
// ask for. A vertex was first found in the tile of its block, which knows its number, or in an earlier one: then the block waits for its number.
// Tickets go on beyond the tiles of vertices found: those blocks copy known vertices. `states`, all 0: a ticket, k + 1 words for the new
// vertices before each minibatch, plus one, and a word for each tile.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) number_found(const bs_i64* __restrict__ known, const bs_i32* __restrict__ held,
                                                                    const bs_i32* __restrict__ held_trees,
                                                                    const bs_i64* __restrict__ pointers, const bs_i32* __restrict__ found,
                                                                    const bs_i32* __restrict__ trees, bs_i64 k,
                                                                    const bs_i64* __restrict__ slots, const bs_i64* __restrict__ starts,
                                                                    bs_u32* numbers, bs_u64* states, bs_i64* __restrict__ ends,
                                                                    bs_i32* __restrict__ vertices, bs_i32* __restrict__ owners,
                                                                    bs_u32* local) {
  __shared__ Votes votes;
  __shared__ bs_i64 place, before_first;
  bs_u64 *begun = states + 1, *sums = begun + k + 1;
  const bs_i64 count = pointers[k], tiles = count / BS_VOTES + 1;
  bs_i64 tile = bs_next_tile(states, &place);
  for (; tile < tiles; tile = bs_next_tile(states, &place)) {
    const bs_i64 first = tile * BS_VOTES, last = first + BS_VOTES < count ? first + BS_VOTES : count;
    const bs_i64 j_first = bs_row_of(pointers, k, first), of_tile = first < last ? bs_row_of(pointers, k, last - 1) - j_first + 1 : 1;
    auto minibatch_of = [&](bs_i64 i) { return j_first + bs_row_of(pointers + j_first, of_tile, i); };
    bs_vote(votes, sums, tile, last, [&](bs_i64 i) {
      const bs_i64 j = minibatch_of(i);
      local[i] = bs_load(&numbers[slot_of(slots, starts, found, j, i)]);
      return local[i] == BS_NEW + (bs_u32)(i - pointers[j]);
    });
    const bs_i64 j_here = first > 0 ? bs_row_of(pointers, k + 1, first - 1) + 1 : 0;  // the first minibatch that begins in the tile
    for (bs_i64 j = j_here + threadIdx.x; j <= k && pointers[j] < first + BS_VOTES; j += BS_BLOCK) {
      const bs_i64 rank = bs_kept_before(votes, first, pointers[j]);
      ends[j] = known[j] + rank;
      ends[k + 1 + j] = pointers[j];
      bs_store(&begun[j], (bs_u64)rank + 1);
    }
    if (threadIdx.x == 0 && first < last)
      before_first = pointers[j_first] < first ? (bs_i64)bs_wait(&begun[j_first]) - 1 : bs_kept_before(votes, first, pointers[j_first]);
    __syncthreads();
    auto number_of = [&](bs_i64 j, bs_i64 rank) {
      const bs_i64 begin = j == j_first ? before_first : bs_kept_before(votes, first, pointers[j]);
      return (bs_u32)(known[j + 1] - known[j] + rank - begin);
    };
    bs_visit_kept(votes, first, [&](bs_i64 i, bs_i64 rank) {
      const bs_i64 j = minibatch_of(i);
      local[i] = number_of(j, rank);
      bs_store(&numbers[slot_of(slots, starts, found, j, i)], local[i]);
      vertices[known[j + 1] + rank] = found[i];
      if (trees) owners[known[j + 1] + rank] = trees[i];
    });
    for (bs_i64 i = first + threadIdx.x; i < last; i += BS_BLOCK) {  // a thread has the entries for which it voted
      if (local[i] < BS_NEW) continue;
      const bs_i64 j = minibatch_of(i), before = pointers[j] + (local[i] - BS_NEW);
      local[i] = before >= first ? number_of(j, bs_kept_before(votes, first, before))
                                 : bs_wait_below(&numbers[slot_of(slots, starts, found, j, i)], BS_NEW);
    }
  }
  for (; (tile - tiles) * BS_VOTES < known[k]; tile = bs_next_tile(states, &place)) {
    const bs_i64 first = (tile - tiles) * BS_VOTES, last = first + BS_VOTES < known[k] ? first + BS_VOTES : known[k];
    for (bs_i64 i = first + threadIdx.x; i < last; i += BS_BLOCK) {
      const bs_i64 at = i + (bs_i64)bs_wait(&begun[bs_row_of(known, k, i)]) - 1;
      vertices[at] = held[i];
      if (trees) owners[at] = held_trees[i];
    }
  }
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
