// The rows of a hop on relations: which draw, from which window of time, and how many picks each has. window_row.h and laws.h decide.
#include "relations.h"
#include "scan_tiles.h"

// Writes the first row of each of k R segments, and the number of rows. Relation q draws for the vertices of its destination that minibatch j
// holds (`held`: k T + 1 pointers) beyond those of `since`, unless that is null. One block.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) relation_segments(const Relation* relations, bs_i64 count, bs_i64 types, bs_i64 k,
                                                                         const bs_i64* __restrict__ held, const bs_i64* __restrict__ since,
                                                                         bs_i64* __restrict__ segments) {
  __shared__ bs_i64 sums[BS_BLOCK / 32];
  bs_i64 earlier = 0, all;
  for (bs_i64 first = 0; blockIdx.x == 0 && first <= k * count; first += BS_BLOCK) {
    const bs_i64 s = first + threadIdx.x;
    bs_i64 rows = 0;
    if (s < k * count) {
      const bs_i64 group = s / count * types + relations[s % count].destination;
      rows = held[group + 1] - held[group] - (since ? since[group + 1] - since[group] : 0);
    }
    const bs_i64 before = bs_block_before(rows, sums, &all);
    if (s <= k * count) segments[s] = earlier + before;
    earlier += all;
  }
}

// The number of candidates of positive weight, at most `wanted`; walks no further than that.
__device__ __forceinline__ bs_i32 positive_of(const Relation& relation, const DrawnRow& row, bs_i64 wanted) {
  if (!relation.values) return (bs_i32)(row.length < wanted ? row.length : wanted);
  bs_i32 found = 0;
  for (bs_u32 i = 0; i < row.length && found < wanted; ++i) found += weight_of(relation, row, position_of(relation, row, i)) > 0;
  return found;
}

__device__ __forceinline__ bs_i32 picks_of(const Relation& relation, const DrawnRow& row) {
  if (row.relation < 0) return (bs_i32)row.length;
  if (relation.law == WEIGHTED) return positive_of(relation, row, 1) ? (bs_i32)relation.fanout : 0;
  return bs_by_key(relation.law) ? positive_of(relation, row, relation.fanout) : (bs_i32)relation.fanout;
}

// Finds the candidates of each row and counts its picks: writes the records, the row pointers of the picks, in `found` the picks before each
// minibatch and source type (k T + 1 numbers; firsts[t] is the first relation of source type t), and in `edges` those before each segment
// (k R + 1). `trees` is null if a minibatch is one tree; `starts` and `ends`, the windows of the trees, may be null. A thread reads a row.
// Lists hubs, unless `hubs` is null.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) relation_rows(const Relation* relations, bs_i64 count, bs_i64 types, bs_i64 k,
                                                                     const bs_i64* __restrict__ firsts, const bs_i64* __restrict__ segments,
                                                                     const bs_i64* __restrict__ held, const bs_i64* __restrict__ since,
                                                                     const bs_i32* __restrict__ vertices, const bs_i32* __restrict__ trees,
                                                                     const bs_i64* __restrict__ names, const bs_i64* __restrict__ starts,
                                                                     const bs_i64* __restrict__ ends, bs_u64* states, bs_i64* pointers,
                                                                     DrawnRow* __restrict__ drawn, bs_i64* __restrict__ found,
                                                                     bs_i64* __restrict__ edges, RelationHubs* hubs) {
  __shared__ Scan shared;
  const bs_i64 rows = segments[k * count];
  auto pick = [&](bs_i64 r) {
    const bs_i64 segment = bs_row_of(segments, k * count, r), j = segment / count, q = segment % count;
    const Relation& relation = relations[q];
    const bs_i64 group = j * types + relation.destination;
    const bs_i64 at = held[group] + (since ? since[group + 1] - since[group] : 0) + r - segments[segment];
    const bs_i32 vertex = vertices[at], tree = trees ? trees[at] : (bs_i32)j;
    const bs_i64 begin = relation.indptr[vertex], degree = relation.indptr[vertex + 1] - begin;
    const bool timed = relation.timed && ends;
    bs_i64 low = 0, high = degree;
    if (timed) {
      high = bs_bisect(relation.timed + begin, degree, ends[tree], !(relation.flags & STRICT));
      if (starts) low = bs_bisect(relation.timed + begin, high, starts[tree], false);
    }
    const bool last = timed && (relation.flags & LAST);
    const BsCandidates taken = bs_candidates(low, high, degree, relation.law, relation.fanout, relation.values, last);
    const DrawnRow row{begin, !timed || taken.in_order ? -1 : (bs_i32)taken.low, (bs_u32)taken.length, (bs_u32)vertex, (bs_u32)names[tree],
                       tree, (bs_i32)(taken.all ? ~q : q)};
    drawn[r] = row;
    if (hubs && is_hub(relation, row)) bs_list_hub(&hubs->hubs, r);
    return relation.fanout == 0 ? 0 : picks_of(relation, row);
  };
  scan_tiles(rows, states, pointers, shared, pick, [&](bs_i64 first) {
    __syncthreads();
    for (bs_i64 group = threadIdx.x; group <= k * types; group += BS_BLOCK) {
      const bs_i64 row = segments[group < k * types ? group / types * count + firsts[group % types] : k * count];
      if (row >= first && row < first + SCAN_TILE) found[group] = pointers[row];
    }
    visit_rows_begun(segments, k * count, first, [&](bs_i64 segment) { edges[segment] = pointers[segments[segment]]; });
  });
}
