// Draws on relations and in windows of time that weigh each candidate: by key (race_row.h) and by weight (weighted_row.h). Keys name the
// column of a candidate or, where edges are parallel, its position in the row.
#include "best_lanes.h"
#include "block_sets.h"
#include "look_back.h"
#include "relations.h"
#include "weighted_warp.h"

// Key bits of the candidate at a position; NO_BITS without weight.
__device__ __forceinline__ bs_u64 key_of(const Relation& relation, const DrawnRow& row, const BsStream& stream, bs_i32 position) {
  const bs_i32 name = relation.flags & BY_PLACE ? position : relation.indices[row.begin + position];
  return key_bits(stream, name, (double)weight_of(relation, row, position));
}

// The best s of the candidates from .. to - 1 of a row, sorted; `column` is the position in the row.
__device__ __forceinline__ Candidate best_of(const Relation& relation, const DrawnRow& row, bs_i64 from, bs_i64 to) {
  const BsStream stream = stream_of(relation, row);
  return best_among(from, to, (bs_i32)relation.fanout, [&](bs_i64 i) {
    const bs_i32 position = position_of(relation, row, i);
    const bs_u64 bits = key_of(relation, row, stream, position);
    return bits == NO_BITS ? Candidate{no_key(), NO_COLUMN} : Candidate{__longlong_as_double((bs_i64)bits), position};
  });
}

// Rows of at most 32 picks by key, a warp each; first the slices of hubs, unless `hubs` is null. `keys` and `found` have room for the best 32
// of each slice.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) relation_race(const Relation* relations, const DrawnRow* __restrict__ drawn,
                                                                     const bs_i64* __restrict__ segments, bs_i64 last,
                                                                     const bs_i64* __restrict__ pointers, bs_i32* __restrict__ columns,
                                                                     bs_i64* __restrict__ entries, bs_i32* __restrict__ trees,
                                                                     RelationHubs* hubs, double* keys, bs_i32* found) {
  const bs_i64 rows = segments[last], slices = hubs ? bs_all_slices(&hubs->hubs) : 0;
  const Picks out{columns, entries, trees};
  auto write = [&](bs_i64 r, const Relation& relation, const DrawnRow& row, const Candidate& best) {
    const bs_i32 position = sorted_column(best, (bs_i32)relation.fanout);
    if (pointers[r] + bs_lane() < pointers[r + 1]) write_pick(out, pointers[r] + bs_lane(), relation, row, position);
  };
  for (bs_i64 item = bs_thread() / 32; item < slices; item += bs_threads() / 32) {
    const bs_i64 r = hubs->hubs.rows[item / BS_SLICES];
    const DrawnRow row = drawn[r];
    const Relation& relation = relations[row.relation];
    if (relation.law == WEIGHTED) continue;
    const Slice own = bs_slice(0, row.length, item % BS_SLICES);
    Candidate best = best_of(relation, row, own.from, own.to);
    if (best_of_slices(&hubs->hubs, item, (bs_i32)relation.fanout, best, keys, found)) write(r, relation, row, best);
  }
  for (bs_i64 r = bs_thread() / 32; r < rows; r += bs_threads() / 32) {
    const DrawnRow row = drawn[r];
    if (row.relation < 0 || pointers[r + 1] == pointers[r]) continue;
    const Relation& relation = relations[row.relation];
    if (!bs_by_key(relation.law) || relation.fanout > 32) continue;
    if (hubs && row.length > BS_HUB && bs_is_listed(&hubs->hubs, r)) continue;
    write(r, relation, row, best_of(relation, row, 0, row.length));
  }
}

// Writes the positions of the `count` smallest keys of a row, by the whole block, in any order; of equal keys the first positions. Keys are
// made anew for each digit of the largest one taken: more arithmetic, but no memory for them and no wait for its size.
__device__ __forceinline__ void take_smallest(const Relation& relation, const DrawnRow& row, const BsStream& stream, bs_i64 count,
                                              Search& search, bs_u32* own) {
  auto key_at = [&](bs_i64 i) { return key_of(relation, row, stream, position_of(relation, row, i)); };
  bs_u64 bound = NO_BITS, first_left = 0;  // keys below the bound are taken, and those that equal it up to a position
  if (count < row.length) {
    bs_i64 below, unused;
    bound = word_of_rank(0, row.length, count, 64, search, &below, key_at);
    if (bound != NO_BITS && below < count)
      first_left = word_of_rank(0, row.length, count - below, 32, search, &unused, [&](bs_i64 i) {
        return key_at(i) == bound ? (bs_u64)position_of(relation, row, i) : 0xFFFFFFFFull;
      });
  }
  bs_i64 written = 0, all;
  for (bs_i64 first = 0; first < row.length; first += BS_BLOCK) {
    const bs_i64 i = first + threadIdx.x;
    const bs_u64 key = i < row.length ? key_at(i) : NO_BITS;
    const bs_i32 position = i < row.length ? position_of(relation, row, i) : 0;
    const bool taken = key < bound || (key == bound && key != NO_BITS && (bs_u64)position < first_left);
    const bs_i64 place = written + bs_block_before((bs_i64)taken, search.sums, &all);
    if (taken) own[place] = (bs_u32)position;
    written += all;
  }
  __syncthreads();
}

// Rows of more by key, a block each.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) relation_race_many(const Relation* relations, const DrawnRow* __restrict__ drawn,
                                                                          const bs_i64* __restrict__ segments, bs_i64 last,
                                                                          const bs_i64* __restrict__ pointers, bs_i32* columns,
                                                                          bs_i64* __restrict__ entries, bs_i32* __restrict__ trees) {
  __shared__ Search search;
  const bs_i64 rows = segments[last];
  const Picks out{columns, entries, trees};
  for (bs_i64 r = blockIdx.x; r < rows; r += gridDim.x) {
    const bs_i64 count = pointers[r + 1] - pointers[r];
    const DrawnRow row = drawn[r];
    if (row.relation < 0 || count == 0) continue;
    const Relation& relation = relations[row.relation];
    if (!bs_by_key(relation.law) || relation.fanout <= 32) continue;
    bs_u32* own = (bs_u32*)columns + pointers[r];
    take_smallest(relation, row, stream_of(relation, row), count, search, own);
    if (row.low >= 0) sort_block(own, (bs_u32)count);
    for (bs_i64 t = threadIdx.x; t < count; t += BS_BLOCK) write_pick(out, pointers[r] + t, relation, row, (bs_i32)own[t]);
    __syncthreads();
  }
}

// Calls write(i, position) for the picks of a window. Its weights lie in the order of time and running sums in that of the adjacency, so a
// lane bisects the position of its target: each step sums the weights up to a position.
template <class Write>
__device__ __forceinline__ void pick_in_window(const Relation& relation, const DrawnRow& row, const BsStream& stream, bs_u32 s, Write write) {
  const bs_u32 lane = (bs_u32)bs_lane();
  bs_u64 total = 0;
  for (bs_i64 i = lane; i < row.length; i += 32) total += (bs_u64)weight_of(relation, row, position_of(relation, row, i));
  bs_warp_before(total, &total);
  auto target_of = [&](bs_u32 t) { return t < s ? bs_target(stream, t, total) : 0; };
  for (bs_u32 group = 0; group < s; group += 32) {
    const bs_u64 target = target_of(group + lane);
    bs_u32 rank = 0;
    for (bs_u32 other = 0; other < s; other += 32) {
      const bs_u64 theirs = target_of(other + lane);
      for (bs_u32 i = 0; i < 32 && other + i < s; ++i) {
        const bs_u64 asked = __shfl_sync(BS_ALL, theirs, (int)i);
        rank += asked < target || (asked == target && other + i < group + lane);
      }
    }
    bs_i32 low = 0, high = (bs_i32)(relation.indptr[row.name + 1] - row.begin) - 1;
    while (__ballot_sync(BS_ALL, low < high)) {
      const bs_i32 middle = low + (high - low) / 2;
      bs_u64 sum = 0;
      for (bs_i64 first = 0; first < row.length; first += 32) {
        const bs_i64 i = first + lane;
        const bs_i32 position = i < row.length ? position_of(relation, row, i) : 0;
        const bs_u64 weight = i < row.length ? (bs_u64)weight_of(relation, row, position) : 0;
        for (int from = 0; from < 32; ++from) {
          const bs_i32 theirs = __shfl_sync(BS_ALL, position, from);
          const bs_u64 own = __shfl_sync(BS_ALL, weight, from);
          sum += theirs <= middle ? own : 0;
        }
      }
      if (low < high && sum > target) high = middle; else if (low < high) low = middle + 1;
    }
    if (group + lane < s) write(rank, low);
  }
}

// Rows of independent draws by weight, a warp each. Hubs come first, unless `hubs` is null: tickets number groups of slices, a slice for each
// warp of a block, which sums it; and the same groups again, which wait for the sums of their hub and pick.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) relation_weighted(const Relation* relations, const DrawnRow* __restrict__ drawn,
                                                                         const bs_i64* __restrict__ segments, bs_i64 last,
                                                                         const bs_i64* __restrict__ pointers, bs_i32* __restrict__ columns,
                                                                         bs_i64* __restrict__ entries, bs_i32* __restrict__ trees,
                                                                         RelationHubs* hubs) {
  constexpr bs_i64 WARPS = BS_BLOCK / 32;
  __shared__ bs_i64 taken;
  __shared__ bs_u64 told;
  __shared__ bool is_last;
  const bs_i64 rows = segments[last], groups = hubs ? bs_all_slices(&hubs->hubs) / WARPS : 0;
  const Picks out{columns, entries, trees};
  auto values_of = [&](const Relation& relation, const DrawnRow& row) { return relation.values ? relation.values + row.begin : nullptr; };
  for (bs_i64 group = 0; groups > 0 && (group = bs_next_tile(&hubs->ticket, &taken)) < 2 * groups;) {
    const bs_i64 item = group % groups * WARPS + threadIdx.x / 32, hub = item / BS_SLICES, slice = item % BS_SLICES;
    const bs_i64 r = hubs->hubs.rows[hub];
    const DrawnRow row = drawn[r];
    const Relation& relation = relations[row.relation];
    const bs_u32 s = (bs_u32)(pointers[r + 1] - pointers[r]);
    if (relation.law != WEIGHTED || s == 0) continue;
    const Slice own = bs_slice(0, row.length, slice);
    const bs_i64* values = values_of(relation, row);
    if (group < groups) {
      const bs_u64 sum = sum_of(values, own.from, own.to);
      if (bs_lane() == 0) hubs->sums[hub][slice] = sum;
      if (bs_comes_last(&hubs->hubs.done[hub], 1, BS_SLICES / WARPS, &is_last) && threadIdx.x == 0) bs_publish(&hubs->known[hub], 1ull);
    } else {
      bs_wait_for(&hubs->known[hub], &told);
      pick_in_slice(values, own, slice, hubs->sums[hub], stream_of(relation, row), s,
                    [&](bs_u32 i, bs_i64 at) { write_pick(out, pointers[r] + i, relation, row, (bs_i32)at); });
    }
  }
  for (bs_i64 r = bs_thread() / 32; r < rows; r += bs_threads() / 32) {
    const bs_u32 s = (bs_u32)(pointers[r + 1] - pointers[r]);
    const DrawnRow row = drawn[r];
    if (row.relation < 0 || s == 0) continue;
    const Relation& relation = relations[row.relation];
    if (relation.law != WEIGHTED) continue;
    const BsStream stream = stream_of(relation, row);
    auto write = [&](bs_u32 i, bs_i64 at) { write_pick(out, pointers[r] + i, relation, row, (bs_i32)at); };
    if (row.low >= 0) {
      pick_in_window(relation, row, stream, s, write);
      continue;
    }
    if (hubs && row.length > BS_HUB && bs_is_listed(&hubs->hubs, r)) continue;
    const bs_i64* values = values_of(relation, row);
    pick_among(values, 0, row.length, 0, sum_of(values, 0, row.length), stream, s, write);
  }
}
