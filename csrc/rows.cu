// Row extraction, Q A for a Q with one 1 in each row. A warp copies 512 entries at a time, wherever rows begin and end (bs_walk);
// neighbouring lanes copy neighbouring entries.
#include "device.h"

// Copies parts[k] rows, or `count` where `parts` is null.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) copy_rows(const bs_i64* __restrict__ indptr, const bs_i32* __restrict__ indices,
                                                                 const bs_i64* __restrict__ values, const bs_i32* __restrict__ rows,
                                                                 bs_i64 count, const bs_i64* __restrict__ parts, bs_i64 k,
                                                                 const bs_i64* __restrict__ pointers, bs_i32* __restrict__ columns,
                                                                 bs_i64* __restrict__ entries) {
  auto shift = [&](bs_i64 r) { return indptr[rows[r]] - pointers[r]; };
  bs_walk(pointers, parts ? parts[k] : count, shift, [&](bs_i64, bs_i64 at, bs_i64 by) {
    columns[at] = indices[at + by];
    if (values) entries[at] = values[at + by];
  });
}
