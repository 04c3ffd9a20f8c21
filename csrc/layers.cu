// Layer-wise sampling beside the product, the race and the restriction: the weights of kept edges. The IEEE operations and their order are those of bulksample/adjacency.py.
#include "table.h"

// Writes the edges of the rows of k frontiers: the vertices found and their weights. A thread takes a row, since its total is summed
// from left to right. Edge e of a row of minibatch j leads to pick picked[j] + columns[e], and is entry entries[e] of A, or
// where `shares` are given, shares[e] is the entry over the sum of its row. Unless `numbers` is null, enters what was found into the table that
// numbers it, as `enter_found` of numbers.cu does; minibatch j has the edges from of_minibatches[j] on.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) weigh_edges(const bs_i32* __restrict__ vertices, const bs_i64* __restrict__ parts,
                                                                   bs_i64 k,
                                                                   const bs_i64* __restrict__ ends, const bs_i32* __restrict__ columns,
                                                                   const bs_i64* __restrict__ entries, const bs_i64* __restrict__ values,
                                                                   const double* __restrict__ row_sums,
                                                                   const double* __restrict__ shares, const bs_i64* __restrict__ picked,
                                                                   const bs_i32* __restrict__ picks, const double* __restrict__ inclusion,
                                                                   bs_i32 debias, bs_i32 renormalise, double* __restrict__ scratch,
                                                                   bs_i32* __restrict__ found, float* __restrict__ weights,
                                                                   const bs_i64* __restrict__ of_minibatches, bs_u32* table,
                                                                   const bs_i64* __restrict__ starts, bs_u32* numbers,
                                                                   bs_i64* __restrict__ slots) {
  for (bs_i64 r = bs_thread(); r < parts[k]; r += bs_threads()) {
    const bs_i64 j = bs_row_of(parts, k, r), first = picked[j];
    const double sum = shares ? 1.0 : row_sums[vertices[r]], whole = sum > 1.0 ? sum : 1.0;
    double total = 0.0;
    for (bs_i64 e = ends[r]; e < ends[r + 1]; ++e) {
      const bs_i64 source = first + columns[e];
      double weight = shares ? shares[e] : (values ? (double)values[entries[e]] : 1.0) / whole;
      if (debias) weight /= inclusion[source];
      found[e] = picks[source];
      if (numbers) bs_enter(table, starts, numbers, slots, j, picks[source], e, of_minibatches[j]);
      scratch[e] = weight;
      total += weight;
    }
    for (bs_i64 e = ends[r]; e < ends[r + 1]; ++e)
      weights[e] = (float)(!renormalise ? scratch[e] : total > 0.0 ? scratch[e] / total : 0.0);
  }
}
