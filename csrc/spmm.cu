// Aggregation over a block, Y = A X: weighted sums or means of rows of X. A warp sums a row of Y, each lane up to four columns, in the order
// of the entries, so a product repeats to the bit. Where the columns are a multiple of four, the four are neighbours and read at once;
// otherwise they lie 32 apart. X is float32, fp16 or bf16, each row with its factor, and may have a cache of frequent rows
// (stored_row.h). The gradient is the same with the transposed block, which `entry_keys` and `take_entries` lay out around a sort.
#include "device.h"
#include "stored_row.h"

// `weights` may be null: ones. So may `scale`, float32 factors of the rows of X. `mean` multiplies by one over the entries of the row, in
// float32 (1 where there are none).
extern "C" __global__ void __launch_bounds__(BS_BLOCK) sum_rows(const bs_i64* __restrict__ indptr, const bs_i32* __restrict__ indices,
                                                                const float* __restrict__ weights, const void* __restrict__ x,
                                                                const void* __restrict__ hot, const bs_i32* __restrict__ slots,
                                                                bs_i32 type, const float* __restrict__ scale, bs_i64 rows, bs_i64 f,
                                                                bs_i32 mean, float* __restrict__ y) {
  const bs_i64 slices = (f + 32 * WIDE - 1) / (32 * WIDE);
  const bs_u64 at_once = type == FP32 ? sizeof(Four) : sizeof(FourHalves);
  const bool together = f % WIDE == 0 && ((bs_u64)x | (bs_u64)hot) % at_once == 0 && (bs_u64)y % sizeof(Four) == 0;
  for (bs_i64 task = bs_thread() / 32; task < rows * slices; task += bs_threads() / 32) {
    const bs_i64 r = task / slices, slice = task % slices * 32 * WIDE, begin = indptr[r], end = indptr[r + 1];
    const bs_i64 column = slice + (together ? WIDE * bs_lane() : bs_lane());
    const float share = mean && end > begin ? (float)(1.0 / (double)(end - begin)) : 1.0f;
    float sum[WIDE] = {};
    if (together && column < f) {
#pragma unroll 2  // two rows are under way at once
      for (bs_i64 e = begin; e < end; ++e) {
        const Source source = source_of(x, hot, slots, indices[e]);
        const Four four = read_four(source.from, source.row * f + column, type);
        const float w = weights ? weights[e] : 1.0f, s = scale ? scale[indices[e]] : 1.0f;
#pragma unroll
        for (bs_i32 i = 0; i < WIDE; ++i) sum[i] += w * (four.of[i] * s);
      }
      Four out;
#pragma unroll
      for (bs_i32 i = 0; i < WIDE; ++i) out.of[i] = sum[i] * share;
      *(Four*)(y + r * f + column) = out;
    }
    if (together) continue;
    for (bs_i64 e = begin; e < end; ++e) {
      const Source source = source_of(x, hot, slots, indices[e]);
      const float w = weights ? weights[e] : 1.0f, s = scale ? scale[indices[e]] : 1.0f;
#pragma unroll
      for (bs_i32 i = 0; i < WIDE; ++i)
        if (column + 32 * i < f) sum[i] += w * (read_as(source.from, source.row * f + column + 32 * i, type) * s);
    }
#pragma unroll
    for (bs_i32 i = 0; i < WIDE; ++i)
      if (column + 32 * i < f) y[r * f + column + 32 * i] = sum[i] * share;
  }
}

// Keys that sort the entries of a block into those of its transpose: (column, row).
extern "C" __global__ void __launch_bounds__(BS_BLOCK) entry_keys(const bs_i64* __restrict__ indptr, const bs_i32* __restrict__ indices,
                                                                  bs_i64 rows, bs_u64* __restrict__ keys, bs_i32* counts) {
  bs_walk(indptr, rows, [](bs_i64) { return 0ll; }, [&](bs_i64 r, bs_i64 at, bs_i64) {
    keys[at] = (bs_u64)indices[at] << 32 | (bs_u64)r;
    atomicAdd(&counts[indices[at]], 1);
  });
}

// The transposed entries; a mean's weight is one over the entries of the row it came from.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) take_entries(const bs_i64* __restrict__ order, const bs_u64* __restrict__ keys,
                                                                    bs_i64 entries, const float* __restrict__ weights,
                                                                    const bs_i64* __restrict__ indptr, bs_i32 mean,
                                                                    bs_i32* __restrict__ rows, float* __restrict__ out) {
  for (bs_i64 i = bs_thread(); i < entries; i += bs_threads()) {
    const bs_i64 from = order[i], r = (bs_i64)(keys[from] & 0xFFFFFFFFull);
    const float w = weights ? weights[from] : 1.0f;
    rows[i] = (bs_i32)r;
    out[i] = mean ? w / (float)(indptr[r + 1] - indptr[r]) : w;
  }
}
