// Uniform draws with fused row sampling: only the picks of a row are read. uniform_row.h decides what draw t picks.
// A thread draws a row of s <= 32 in registers; then its block reads the picked columns and writes them side by side.
// For a larger s a block draws a row: all words at once, and a hash table holds the positions taken before.
#include "block_sets.h"
#include "uniform_registers.h"

// The stream of row r: all counter words except the draw.
__device__ __forceinline__ BsStream stream_of(bs_i64 r, const bs_i32* names, const bs_i64* parts, bs_i64 k, const bs_i64* minibatches,
                                              bs_u64 seed, bs_u32 tag) {
  return BsStream{seed, (bs_u32)names[r], (bs_u32)minibatches[bs_row_of(parts, k, r)], tag};
}

// For 128 rows, positions[t * 128 + thread] holds pick t of a thread's row, and ends[thread] the end of its picks.
template <int S>
__device__ __forceinline__ void draw_few(const bs_i64* __restrict__ indptr, const bs_i32* __restrict__ indices,
                                         const bs_i32* __restrict__ vertices, const bs_i32* __restrict__ names,
                                         const bs_i64* __restrict__ parts, bs_i64 k, const bs_i64* __restrict__ minibatches, bs_u32 s,
                                         bs_i32 repeated, bs_u64 seed, bs_u32 tag, const bs_i64* __restrict__ pointers,
                                         bs_i32* __restrict__ columns, bs_u32* positions, bs_i64* starts, bs_i32* ends) {
  const bs_i64 rows = parts[k];
  for (bs_i64 first = (bs_i64)blockIdx.x * BS_BLOCK; first < rows; first += (bs_i64)gridDim.x * BS_BLOCK) {
    const bs_i64 r = first + threadIdx.x, base = pointers[first];
    if (r < rows) {
      const bs_i64 begin = indptr[vertices[r]];
      const bs_u32 degree = (bs_u32)(indptr[vertices[r] + 1] - begin);
      bs_u32 picks[S];
      if (degree > (repeated ? 0u : s)) {
        bs_draw_registers<S>(stream_of(r, names, parts, k, minibatches, seed, tag), degree, s, !repeated, picks);
      } else {
#pragma unroll
        for (int t = 0; t < S; ++t) picks[t] = (bs_u32)t;
      }
#pragma unroll
      for (int t = 0; t < S; ++t) positions[t * BS_BLOCK + threadIdx.x] = picks[t];
      starts[threadIdx.x] = begin;
      ends[threadIdx.x] = (bs_i32)(pointers[r + 1] - base);
    }
    __syncthreads();
    const bs_i32 held = (bs_i32)(rows - first < BS_BLOCK ? rows - first : BS_BLOCK), total = ends[held - 1];
    for (bs_i32 at = (bs_i32)threadIdx.x; at < total; at += BS_BLOCK) {
      bs_i32 low = 0, high = held - 1;  // the first row that ends beyond `at`
      while (low < high) {
        const bs_i32 middle = (low + high) >> 1;
        if (ends[middle] > at) high = middle; else low = middle + 1;
      }
      const bs_i32 t = at - (low ? ends[low - 1] : 0);
      columns[base + at] = indices[starts[low] + positions[t * BS_BLOCK + low]];
    }
    __syncthreads();
  }
}

#define DRAW_FEW(S)                                                                                                                   \
  __shared__ bs_u32 positions[S * BS_BLOCK];                                                                                          \
  __shared__ bs_i64 starts[BS_BLOCK];                                                                                                 \
  __shared__ bs_i32 ends[BS_BLOCK];                                                                                                   \
  draw_few<S>(indptr, indices, vertices, names, parts, k, minibatches, s, repeated, seed, tag, pointers, columns, positions, \
              starts, ends)

extern "C" __global__ void __launch_bounds__(BS_BLOCK) draw_8(const bs_i64* indptr, const bs_i32* indices, const bs_i32* vertices,
                                                              const bs_i32* names, const bs_i64* parts, bs_i64 k,
                                                              const bs_i64* minibatches, bs_u32 s, bs_i32 repeated, bs_u64 seed,
                                                              bs_u32 tag, const bs_i64* pointers, bs_i32* columns) {
  DRAW_FEW(8);
}

extern "C" __global__ void __launch_bounds__(BS_BLOCK) draw_16(const bs_i64* indptr, const bs_i32* indices, const bs_i32* vertices,
                                                               const bs_i32* names, const bs_i64* parts, bs_i64 k,
                                                               const bs_i64* minibatches, bs_u32 s, bs_i32 repeated, bs_u64 seed,
                                                               bs_u32 tag, const bs_i64* pointers, bs_i32* columns) {
  DRAW_FEW(16);
}

extern "C" __global__ void __launch_bounds__(BS_BLOCK) draw_32(const bs_i64* indptr, const bs_i32* indices, const bs_i32* vertices,
                                                               const bs_i32* names, const bs_i64* parts, bs_i64 k,
                                                               const bs_i64* minibatches, bs_u32 s, bs_i32 repeated, bs_u64 seed,
                                                               bs_u32 tag, const bs_i64* pointers, bs_i32* columns) {
  DRAW_FEW(32);
}

// Rows of s > 32. `scratch` holds for each block 2^bits positions, 2^bits draws that took them first, and s picks; 2^bits >= 2 s.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) draw_many(const bs_i64* __restrict__ indptr, const bs_i32* __restrict__ indices,
                                                                 const bs_i32* __restrict__ vertices, const bs_i32* __restrict__ names,
                                                                 const bs_i64* __restrict__ parts, bs_i64 k,
                                                                 const bs_i64* __restrict__ minibatches, bs_u32 s, bs_i32 repeated,
                                                                 bs_u64 seed, bs_u32 tag, const bs_i64* __restrict__ pointers,
                                                                 bs_i32* columns, bs_u32* scratch, bs_i32 bits) {
  bs_u32* table = scratch + (bs_i64)blockIdx.x * (2ll << bits) + (bs_i64)blockIdx.x * s;
  for (bs_i64 r = blockIdx.x; r < parts[k]; r += gridDim.x) {
    const bs_i64 begin = indptr[vertices[r]], count = pointers[r + 1] - pointers[r];
    const bs_u32 degree = (bs_u32)(indptr[vertices[r] + 1] - begin);
    bs_u32* out = (bs_u32*)columns + pointers[r];
    if (degree <= (repeated ? 0u : s)) {
      for (bs_i64 t = threadIdx.x; t < count; t += BS_BLOCK) out[t] = (bs_u32)indices[begin + t];
      continue;
    }
    const BsStream stream = stream_of(r, names, parts, k, minibatches, seed, tag);
    draw_block(stream, degree, s, repeated, table, bits, out);
    __syncthreads();
    sort_block(out, s);
    for (bs_u32 t = threadIdx.x; t < s; t += BS_BLOCK) out[t] = (bs_u32)indices[begin + out[t]];
    __syncthreads();
  }
}
