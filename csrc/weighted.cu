// Independent draws by weight: weighted_row.h decides what draw t picks. A thread draws a row, and keeps its picks in ascending order.
#include "device.h"
#include "weighted_row.h"

// Counts the picks of each of the parts[k] rows: s if a neighbour has a positive weight, else 0; 0 for the rest of `room`.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) count_weighted(const bs_i64* __restrict__ indptr, const bs_i64* __restrict__ values,
                                                                      const bs_i32* __restrict__ vertices, bs_i64 room,
                                                                      const bs_i64* __restrict__ parts, bs_i64 k, bs_i64 s,
                                                                      bs_i32* __restrict__ counts) {
  const bs_i64 rows = parts[k];
  for (bs_i64 r = bs_thread(); r < room; r += bs_threads()) {
    const bs_i64 end = r < rows ? indptr[vertices[r] + 1] : 0;
    bs_i64 at = r < rows ? indptr[vertices[r]] : 0;
    while (at < end && values && values[at] == 0) ++at;
    counts[r] = (bs_i32)(at < end ? s : 0);
  }
}

extern "C" __global__ void __launch_bounds__(BS_BLOCK) draw_weighted(const bs_i64* __restrict__ indptr, const bs_i32* __restrict__ indices,
                                                                     const bs_i64* __restrict__ values, const bs_i32* __restrict__ vertices,
                                                                     const bs_i32* __restrict__ names, const bs_i64* __restrict__ parts,
                                                                     bs_i64 k, const bs_i64* __restrict__ minibatches, bs_u64 seed,
                                                                     bs_u32 tag, const bs_i64* __restrict__ pointers,
                                                                     bs_i32* __restrict__ columns) {
  const bs_i64 rows = parts[k];
  for (bs_i64 r = bs_thread(); r < rows; r += bs_threads()) {
    const bs_i64 begin = indptr[vertices[r]], first = pointers[r];
    const bs_u32 degree = (bs_u32)(indptr[vertices[r] + 1] - begin), s = (bs_u32)(pointers[r + 1] - first);
    if (s == 0) continue;
    const BsStream stream{seed, (bs_u32)names[r], (bs_u32)minibatches[bs_row_of(parts, k, r)], tag};
    const bs_i64* weights = values ? values + begin : nullptr;
    const bs_u64 total = bs_weight(weights, degree);
    for (bs_u32 t = 0; t < s; ++t) {
      bs_u64 sum = 0;
      const bs_i32 pick = indices[begin + bs_reach(weights, bs_target(stream, t, total), 0, sum)];
      bs_u32 at = t;
      for (; at > 0 && columns[first + at - 1] > pick; --at) columns[first + at] = columns[first + at - 1];
      columns[first + at] = pick;
    }
  }
}
