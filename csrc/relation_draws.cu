// Uniform draws on relations and in windows of time, and rows that are taken whole. A thread draws a row of at most 32 picks in registers;
// then its block reads the picked columns and writes them side by side. A block draws a row of more. What is picked in the order of time is
// sorted by its position in the row.
#include "block_sets.h"
#include "relations.h"
#include "uniform_registers.h"

constexpr bs_i64 FEW = 32;  // picks of a row that a thread draws: FEW of bulksample/backends/cuda/draws.py

__device__ __forceinline__ bool is_ours(const Relation* relations, const DrawnRow& row) {
  return row.relation < 0 || !bs_weighs(relations[row.relation].law);
}

// Shared memory of a block that draws 128 rows: positions[t * 128 + thread] holds pick t of a thread's row.
template <int S>
struct Drawn {
  bs_i32 positions[S * BS_BLOCK];
  bs_i64 shift[BS_BLOCK];  // from the place of an edge among those of the block to its place among all
  bs_i32 ends[BS_BLOCK], sums[BS_BLOCK / 32];
};

// The picks of a row, ascending in the order of the adjacency; the rest of the S are 2^31 - 1.
template <int S>
__device__ __forceinline__ void draw_row(const Relation& relation, const DrawnRow& row, bs_i32 count, bs_i32* picks) {
  bs_u32 drawn[S];
  if (row.relation < 0) {
#pragma unroll
    for (int t = 0; t < S; ++t) drawn[t] = (bs_u32)t;
  } else {
    bs_draw_registers<S>(stream_of(relation, row), row.length, (bs_u32)count, relation.law == UNIFORM, drawn);
  }
#pragma unroll
  for (int t = 0; t < S; ++t) picks[t] = 0x7FFFFFFF;
#pragma unroll
  for (int t = 0; t < S; ++t) {
    if (t >= count) continue;
    bs_i32 pick = position_of(relation, row, drawn[t]);
#pragma unroll
    for (int i = 0; i < S; ++i) {  // into its place: what is larger moves up
      const bs_i32 low = picks[i] < pick ? picks[i] : pick;
      pick = picks[i] < pick ? pick : picks[i];
      picks[i] = low;
    }
  }
}

template <int S>
__device__ __forceinline__ void draw_few(const Relation* relations, const DrawnRow* __restrict__ drawn, bs_i64 rows,
                                         const bs_i64* __restrict__ pointers, const Picks& out, Drawn<S>& shared) {
  for (bs_i64 first = (bs_i64)blockIdx.x * BS_BLOCK; first < rows; first += (bs_i64)gridDim.x * BS_BLOCK) {
    const bs_i64 r = first + threadIdx.x;
    bs_i32 own = 0, total;
    if (r < rows && pointers[r + 1] - pointers[r] <= S && is_ours(relations, drawn[r])) own = (bs_i32)(pointers[r + 1] - pointers[r]);
    if (own) {
      bs_i32 picks[S];
      draw_row<S>(relation_of(relations, drawn[r]), drawn[r], own, picks);
#pragma unroll
      for (int t = 0; t < S; ++t) shared.positions[t * BS_BLOCK + threadIdx.x] = picks[t];
    }
    const bs_i32 before = bs_block_before(own, shared.sums, &total);
    shared.ends[threadIdx.x] = before + own;
    shared.shift[threadIdx.x] = r < rows ? pointers[r] - before : 0;
    __syncthreads();
    for (bs_i32 at = (bs_i32)threadIdx.x; at < total; at += BS_BLOCK) {
      bs_i32 low = 0, high = BS_BLOCK - 1;  // the first row that ends beyond `at`
      while (low < high) {
        const bs_i32 middle = (low + high) >> 1;
        if (shared.ends[middle] > at) high = middle; else low = middle + 1;
      }
      const DrawnRow& row = drawn[first + low];
      const bs_i32 t = at - (low ? shared.ends[low - 1] : 0);
      write_pick(out, shared.shift[low] + at, relation_of(relations, row), row, shared.positions[t * BS_BLOCK + low]);
    }
    __syncthreads();
  }
}

extern "C" __global__ void __launch_bounds__(BS_BLOCK) relation_8(const Relation* relations, const DrawnRow* drawn, const bs_i64* segments,
                                                                  bs_i64 last, const bs_i64* pointers, bs_i32* columns, bs_i64* entries,
                                                                  bs_i32* trees) {
  __shared__ Drawn<8> shared;
  draw_few<8>(relations, drawn, segments[last], pointers, Picks{columns, entries, trees}, shared);
}

extern "C" __global__ void __launch_bounds__(BS_BLOCK) relation_16(const Relation* relations, const DrawnRow* drawn, const bs_i64* segments,
                                                                   bs_i64 last, const bs_i64* pointers, bs_i32* columns, bs_i64* entries,
                                                                   bs_i32* trees) {
  __shared__ Drawn<16> shared;
  draw_few<16>(relations, drawn, segments[last], pointers, Picks{columns, entries, trees}, shared);
}

extern "C" __global__ void __launch_bounds__(BS_BLOCK) relation_32(const Relation* relations, const DrawnRow* drawn, const bs_i64* segments,
                                                                   bs_i64 last, const bs_i64* pointers, bs_i32* columns, bs_i64* entries,
                                                                   bs_i32* trees) {
  __shared__ Drawn<32> shared;
  draw_few<32>(relations, drawn, segments[last], pointers, Picks{columns, entries, trees}, shared);
}

// Rows of more than 32 picks, by a block each. `scratch` holds for each block what `draw_block` needs, with s the largest fanout.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) relation_many(const Relation* relations, const DrawnRow* __restrict__ drawn,
                                                                     const bs_i64* __restrict__ segments, bs_i64 last,
                                                                     const bs_i64* __restrict__ pointers, bs_i32* columns,
                                                                     bs_i64* __restrict__ entries, bs_i32* __restrict__ trees,
                                                                     bs_u32* scratch, bs_i64 s, bs_i32 bits) {
  __shared__ bs_i32 places[BS_BLOCK], sums[BS_BLOCK / 32];
  bs_u32* table = scratch + (bs_i64)blockIdx.x * ((2ll << bits) + s);
  const bs_i64 rows = segments[last];
  const Picks out{columns, entries, trees};
  for (bs_i64 first = (bs_i64)blockIdx.x * BS_BLOCK; first < rows; first += (bs_i64)gridDim.x * BS_BLOCK) {
    const bs_i64 mine = first + threadIdx.x;
    const bool many = mine < rows && pointers[mine + 1] - pointers[mine] > FEW && is_ours(relations, drawn[mine]);
    bs_i32 all;
    const bs_i32 before = bs_block_before((bs_i32)many, sums, &all);
    if (many) places[before] = (bs_i32)threadIdx.x;
    __syncthreads();
    for (bs_i32 i = 0; i < all; ++i) {
      const bs_i64 r = first + places[i];
      const DrawnRow row = drawn[r];
      const Relation& relation = relation_of(relations, row);
      const bs_u32 count = (bs_u32)(pointers[r + 1] - pointers[r]);
      bs_u32* own = (bs_u32*)columns + pointers[r];
      if (row.relation < 0)
        for (bs_u32 t = threadIdx.x; t < count; t += BS_BLOCK) own[t] = t;
      else
        draw_block(stream_of(relation, row), row.length, count, relation.law == REPLACEMENT, table, bits, own);
      for (bs_u32 t = threadIdx.x; t < count; t += BS_BLOCK) own[t] = (bs_u32)position_of(relation, row, own[t]);  // each its own
      __syncthreads();
      if (row.relation >= 0 || row.low >= 0) sort_block(own, count);
      for (bs_u32 t = threadIdx.x; t < count; t += BS_BLOCK) write_pick(out, pointers[r] + t, relation, row, (bs_i32)own[t]);
      __syncthreads();
    }
  }
}
