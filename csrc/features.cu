// Feature rows: H[rows], from and to float32, fp16 and bf16 (half_row.h). Where there is a cache, row r is row slots[r] of `hot`, or, if
// that is negative, row r of H, which may lie in memory of the host. Up to 32 lanes share a row and a warp takes several narrow
// ones; where nothing is converted, rows are copied in the widest words that they are made of, of 16 bytes at most.
#include "device.h"
#include "stored_row.h"

// `lanes` neighbouring lanes, a power of two, take a row: visit(row, unit) for its `units` units.
template <class Visit>
__device__ __forceinline__ void for_units(bs_i64 rows, bs_i64 units, bs_i32 lanes, Visit visit) {
  for (bs_i64 r = bs_thread() / lanes; r < rows; r += bs_threads() / lanes)
#pragma unroll 4
    for (bs_i64 u = bs_lane() & (lanes - 1); u < units; u += lanes) visit(r, u);
}

struct alignas(16) Sixteen {
  bs_u64 low, high;
};

template <class Word>
__device__ __forceinline__ void copy_words(const void* from, const void* hot, const bs_i32* slots, const bs_i32* rows, bs_i64 count,
                                           bs_i64 bytes, bs_i32 lanes, void* to) {
  const bs_i64 units = bytes / (bs_i64)sizeof(Word);
  Word* out = (Word*)to;
  for_units(count, units, lanes, [&](bs_i64 r, bs_i64 u) {
    const Source source = source_of(from, hot, slots, rows[r]);
    out[r * units + u] = ((const Word*)source.from)[source.row * units + u];
  });
}

// Copies rows of `bytes` bytes in words of 16, 4 or 2; both arrays are aligned to 16 bytes.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) gather_bytes(const void* __restrict__ from, const void* __restrict__ hot,
                                                                    const bs_i32* __restrict__ slots, const bs_i32* __restrict__ rows,
                                                                    bs_i64 count, bs_i64 bytes, bs_i32 word, bs_i32 lanes,
                                                                    void* __restrict__ to) {
  if (word == 16) copy_words<Sixteen>(from, hot, slots, rows, count, bytes, lanes, to);
  if (word == 4) copy_words<bs_u32>(from, hot, slots, rows, count, bytes, lanes, to);
  if (word == 2) copy_words<unsigned short>(from, hot, slots, rows, count, bytes, lanes, to);
}

__device__ __forceinline__ void write_as(void* to, bs_i64 at, bs_i32 type, float x) {
  if (type == FP32) ((float*)to)[at] = x;
  if (type == FP16) ((unsigned short*)to)[at] = (unsigned short)bs_to_fp16(x);
  if (type == BF16) ((unsigned short*)to)[at] = (unsigned short)bs_to_bf16(x);
}

extern "C" __global__ void __launch_bounds__(BS_BLOCK) gather_converted(const void* __restrict__ from, const void* __restrict__ hot,
                                                                        const bs_i32* __restrict__ slots, bs_i32 from_type,
                                                                        const bs_i32* __restrict__ rows, bs_i64 count, bs_i64 width,
                                                                        bs_i32 lanes, void* __restrict__ to, bs_i32 to_type) {
  for_units(count, width, lanes, [&](bs_i64 r, bs_i64 u) {
    const Source source = source_of(from, hot, slots, rows[r]);
    write_as(to, r * width + u, to_type, read_as(source.from, source.row * width + u, from_type));
  });
}
