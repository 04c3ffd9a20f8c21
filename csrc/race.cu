// Draws by key: the s smallest of -log(u) / w, as race_row.h makes them, for s <= 32. A warp keeps the best in its lanes: 32 candidates are
// sorted and merged into those kept, and a chunk without a small enough key is skipped. Many warps share a hub (hubs.h). A larger s:
// race_many.cu; rows of whole layers: layer_race.cu.
#include "best_lanes.h"

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
    Candidate best = best_of(indices, values, stream, own.from, own.to, s);
    if (best_of_slices(hubs, item, s, best, keys, found)) write_best(best, s, pointers[r], pointers[r + 1], columns);
  }
}
