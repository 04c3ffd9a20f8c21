// Independent draws by weight: weighted_row.h decides what draw t picks. A warp draws a row, so that the lanes share a hub: once for the sum
// of its weights, and once for the running sum (weighted_warp.h). Many warps share a hub (hubs.h): one launch lists it, the next sums its
// slices, and the last picks in them.
#include "weighted_warp.h"

// Counts the picks of each of the parts[k] rows: s if a neighbour has a positive weight, else 0. Lists hubs, unless `hubs` is null.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) count_weighted(const bs_i64* __restrict__ indptr, const bs_i64* __restrict__ values,
                                                                      const bs_i32* __restrict__ vertices,
                                                                      const bs_i64* __restrict__ parts, bs_i64 k, bs_i64 s,
                                                                      bs_i32* __restrict__ counts, Hubs* hubs) {
  const bs_i64 rows = parts[k];
  for (bs_i64 r = bs_thread(); r < rows; r += bs_threads()) {
    const bs_i64 end = indptr[vertices[r] + 1];
    bs_i64 at = indptr[vertices[r]];
    if (hubs && end - at > BS_HUB) bs_list_hub(hubs, r);
    while (at < end && values && values[at] == 0) ++at;
    counts[r] = (bs_i32)(at < end ? s : 0);
  }
}

// Draws the rows that are not listed, and sums the weights of each slice of those that are.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) draw_weighted(const bs_i64* __restrict__ indptr, const bs_i32* __restrict__ indices,
                                                                     const bs_i64* __restrict__ values, const bs_i32* __restrict__ vertices,
                                                                     const bs_i32* __restrict__ names, const bs_i64* __restrict__ parts,
                                                                     bs_i64 k, const bs_i64* __restrict__ minibatches, bs_u64 seed,
                                                                     bs_u32 tag, const bs_i64* __restrict__ pointers,
                                                                     bs_i32* __restrict__ columns, const Hubs* __restrict__ hubs,
                                                                     bs_u64* __restrict__ sums) {
  const bs_i64 slices = hubs ? bs_all_slices(hubs) : 0, rows = parts[k];
  for (bs_i64 item = bs_thread() / 32; item < slices; item += bs_threads() / 32) {
    const bs_i64 r = hubs->rows[item / BS_SLICES];
    const Slice own = bs_slice(indptr[vertices[r]], indptr[vertices[r] + 1], item % BS_SLICES);
    const bs_u64 sum = sum_of(values, own.from, own.to);
    if (bs_lane() == 0) sums[item] = sum;
  }
  for (bs_i64 r = bs_thread() / 32; r < rows; r += bs_threads() / 32) {
    const bs_i64 begin = indptr[vertices[r]], end = indptr[vertices[r] + 1], to = pointers[r];
    const bs_u32 s = (bs_u32)(pointers[r + 1] - to);
    if (s == 0 || (hubs && end - begin > BS_HUB && bs_is_listed(hubs, r))) continue;
    const BsStream stream{seed, (bs_u32)names[r], (bs_u32)minibatches[bs_row_of(parts, k, r)], tag};
    pick_among(values, begin, end, 0, sum_of(values, begin, end), stream, s, [&](bs_u32 i, bs_i64 at) { columns[to + i] = indices[at]; });
  }
}

// Draws the rows that are listed; a warp takes a slice.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) pick_in_hubs(const bs_i64* __restrict__ indptr, const bs_i32* __restrict__ indices,
                                                                    const bs_i64* __restrict__ values, const bs_i32* __restrict__ vertices,
                                                                    const bs_i32* __restrict__ names, const bs_i64* __restrict__ parts,
                                                                    bs_i64 k, const bs_i64* __restrict__ minibatches, bs_u64 seed,
                                                                    bs_u32 tag, const bs_i64* __restrict__ pointers,
                                                                    bs_i32* __restrict__ columns, const Hubs* __restrict__ hubs,
                                                                    const bs_u64* __restrict__ sums) {
  const bs_i64 slices = bs_all_slices(hubs);
  for (bs_i64 item = bs_thread() / 32; item < slices; item += bs_threads() / 32) {
    const bs_i64 slice = item % BS_SLICES, r = hubs->rows[item / BS_SLICES], to = pointers[r];
    const bs_u32 s = (bs_u32)(pointers[r + 1] - to);
    const Slice own = bs_slice(indptr[vertices[r]], indptr[vertices[r] + 1], slice);
    const BsStream stream{seed, (bs_u32)names[r], (bs_u32)minibatches[bs_row_of(parts, k, r)], tag};
    pick_in_slice(values, own, slice, sums + item - slice, stream, s, [&](bs_u32 i, bs_i64 at) { columns[to + i] = indices[at]; });
  }
}
