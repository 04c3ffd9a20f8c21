// Draws by key: the s smallest of -log(u) / w, as race_row.h makes them.
// For s <= 32 a warp keeps the best in its lanes: 32 candidates are sorted and merged into those kept, and a chunk without a small
// enough key is skipped. Many warps share a hub (hubs.h). For a larger s all keys are written to memory; a block then finds the s-th smallest digit by digit and takes the
// keys below it, in the order of the columns. Rows of whole layers: layer_race.cu.
#include "best_lanes.h"
#include "hubs.h"

// Counts the neighbours of positive weight of each of the parts[k] rows, at most s. A warp counts a row.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) count_positive(const bs_i64* __restrict__ indptr, const bs_i64* __restrict__ values,
                                                                      const bs_i32* __restrict__ vertices,
                                                                      const bs_i64* __restrict__ parts, bs_i64 k, bs_i64 s,
                                                                      bs_i32* __restrict__ counts) {
  const bs_i64 rows = parts[k];
  for (bs_i64 r = bs_thread() / 32; r < rows; r += bs_threads() / 32) {
    const bs_i64 end = indptr[vertices[r] + 1];
    bs_i64 found = 0;
    for (bs_i64 first = indptr[vertices[r]]; first < end && found < s; first += 32)
      found += __popc(__ballot_sync(BS_ALL, first + bs_lane() < end && values[first + bs_lane()] > 0));
    if (bs_lane() == 0) counts[r] = (bs_i32)(found < s ? found : s);
  }
}

// The best s of the neighbours from .. to - 1, sorted; `values` may be null: ones.
__device__ __forceinline__ Candidate best_of(const bs_i32* indices, const bs_i64* values, const BsStream& stream, bs_i64 from, bs_i64 to,
                                             bs_i32 s) {
  return best_among(from, to, s, [&](bs_i64 at) {
    const double weight = values ? (double)values[at] : 1.0;
    return weight > 0.0 ? Candidate{bs_key(stream, (bs_u32)indices[at], weight), indices[at]} : Candidate{no_key(), NO_COLUMN};
  });
}

// Writes the columns of the best s, ascending.
__device__ __forceinline__ void write_best(const Candidate& kept, bs_i32 s, bs_i64 start, bs_i64 end, bs_i32* columns) {
  const bs_i32 column = sorted_column(kept, s);
  if (start + bs_lane() < end) columns[start + bs_lane()] = column;
}

// s <= 32. `shared`: the row is left out of the key. Lists hubs, unless `hubs` is null, in the place of drawing them.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) race_few(const bs_i64* __restrict__ indptr, const bs_i32* __restrict__ indices,
                                                                const bs_i64* __restrict__ values, const bs_i32* __restrict__ vertices,
                                                                const bs_i32* __restrict__ names,
                                                                const bs_i64* __restrict__ parts, bs_i64 k,
                                                                const bs_i64* __restrict__ minibatches, bs_i32 s, bs_i32 shared,
                                                                bs_u64 seed, bs_u32 tag, const bs_i64* __restrict__ pointers,
                                                                bs_i32* __restrict__ columns, Hubs* hubs) {
  const bs_i64 rows = parts[k];
  for (bs_i64 r = bs_thread() / 32; r < rows; r += bs_threads() / 32) {
    const bs_i64 begin = indptr[vertices[r]], end = indptr[vertices[r] + 1];
    if (hubs && end - begin > BS_HUB && __ballot_sync(BS_ALL, bs_lane() == 0 && bs_list_hub(hubs, r))) continue;
    const BsStream stream{seed, shared ? 0u : (bs_u32)names[r], (bs_u32)minibatches[bs_row_of(parts, k, r)], tag};
    write_best(best_of(indices, values, stream, begin, end, s), s, pointers[r], pointers[r + 1], columns);
  }
}

// The rows that `race_few` listed. A warp takes a slice and leaves its best 32 in `keys` and `found`; the one that ends the last slice of a
// row merges them.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) race_hubs(const bs_i64* __restrict__ indptr, const bs_i32* __restrict__ indices,
                                                                 const bs_i64* __restrict__ values, const bs_i32* __restrict__ vertices,
                                                                 const bs_i32* __restrict__ names,
                                                                 const bs_i64* __restrict__ parts, bs_i64 k,
                                                                 const bs_i64* __restrict__ minibatches, bs_i32 s, bs_i32 shared,
                                                                 bs_u64 seed, bs_u32 tag, const bs_i64* __restrict__ pointers,
                                                                 bs_i32* __restrict__ columns, Hubs* hubs, double* keys, bs_i32* found) {
  const bs_i64 all = bs_all_slices(hubs);
  for (bs_i64 item = bs_thread() / 32; item < all; item += bs_threads() / 32) {
    const bs_i64 hub = item / BS_SLICES, r = hubs->rows[hub];
    const Slice own = bs_slice(indptr[vertices[r]], indptr[vertices[r] + 1], item % BS_SLICES);
    const BsStream stream{seed, shared ? 0u : (bs_u32)names[r], (bs_u32)minibatches[bs_row_of(parts, k, r)], tag};
    const Candidate best = best_of(indices, values, stream, own.from, own.to, s);
    bs_store(&keys[32 * item + bs_lane()], best.key);
    bs_store(&found[32 * item + bs_lane()], best.column);
    __threadfence();
    __syncwarp();
    if (!__ballot_sync(BS_ALL, bs_lane() == 0 && atomicAdd(&hubs->done[hub], 1ull) == BS_SLICES - 1)) continue;
    __threadfence();
    Candidate kept{no_key(), NO_COLUMN};
    for (bs_i64 other = hub * BS_SLICES; other < (hub + 1) * BS_SLICES && s > 0; ++other)
      keep_best(kept, Candidate{bs_load(&keys[32 * other + bs_lane()]), bs_load(&found[32 * other + bs_lane()])}, s, true);
    write_best(kept, s, pointers[r], pointers[r + 1], columns);
  }
}

// The keys of all neighbours of parts[k] rows, laid end to end from pointers[0].
extern "C" __global__ void __launch_bounds__(BS_BLOCK) keys_of_rows(const bs_i64* __restrict__ indptr, const bs_i32* __restrict__ indices,
                                                                    const bs_i64* __restrict__ values, const bs_i32* __restrict__ vertices,
                                                                    const bs_i32* __restrict__ names,
                                                                    const bs_i64* __restrict__ parts, bs_i64 k,
                                                                    const bs_i64* __restrict__ minibatches, bs_i32 shared, bs_u64 seed,
                                                                    bs_u32 tag, const bs_i64* __restrict__ pointers,
                                                                    bs_u64* __restrict__ keys, bs_i32* __restrict__ columns) {
  auto shift = [&](bs_i64 r) { return indptr[vertices[r]] - pointers[r]; };
  bs_walk(pointers, parts[k], shift, [&](bs_i64 r, bs_i64 at, bs_i64 by) {
    const BsStream stream{seed, shared ? 0u : (bs_u32)names[r], (bs_u32)minibatches[bs_row_of(parts, k, r)], tag};
    columns[at] = indices[at + by];
    keys[at] = key_bits(stream, columns[at], values ? (double)values[at + by] : 1.0);
  });
}

// Writes the picks of each of parts[k] rows in the order of their columns; a block takes a row.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) take_smallest(const bs_i64* __restrict__ pointers, const bs_u64* __restrict__ keys,
                                                                     const bs_i32* __restrict__ columns,
                                                                     const bs_i64* __restrict__ parts, bs_i64 k, bs_i64 s,
                                                                     const bs_i64* __restrict__ ends, bs_i32* __restrict__ picks) {
  __shared__ Search search;
  const bs_i64 rows = parts[k];
  for (bs_i64 r = blockIdx.x; r < rows; r += gridDim.x) {
    const bs_i64 begin = pointers[r], end = pointers[r + 1];
    bs_i64 below = 0, written = ends[r];
    const bs_u64 bound = s < end - begin ? word_of_rank(begin, end, s, 64, search, &below, [&](bs_i64 at) { return keys[at]; }) : NO_BITS;
    bs_i64 ties = bound == NO_BITS ? 0 : s - below;  // how many keys equal to the bound are taken
    for (bs_i64 first = begin; first < end; first += BS_BLOCK) {
      const bs_i64 at = first + threadIdx.x;
      const bool less = at < end && keys[at] < bound, tie = at < end && keys[at] == bound && bound != NO_BITS;
      bs_i64 all, all_ties;
      const bool taken = bs_block_before((bs_i64)tie, search.sums, &all_ties) < ties ? less || tie : less;
      const bs_i64 place = written + bs_block_before((bs_i64)taken, search.sums, &all);
      if (taken) picks[place] = columns[at];
      written += all;
      ties -= ties < all_ties ? ties : all_ties;
    }
    __syncthreads();
  }
}
