// The first s columns to arrive in a Poisson process that a row of weights describes (bulksample/samplers/arrivals.py): a block takes a
// minibatch, 1,024 arrivals at a time, as the search of a column is a chain of reads, and few blocks have work. A hash table holds the first
// arrival of each column. Words are read until s + 1 columns have arrived.
#include "block_sets.h"
#include "race_row.h"
#include "table.h"

// The column of a target below ends[count - 1]: the first that ends beyond it.
__device__ __forceinline__ bs_u32 column_of(const bs_i64* ends, bs_i64 count, bs_u64 target) {
  bs_i64 low = 0, high = count - 1;
  while (low < high) {
    const bs_i64 middle = (low + high) >> 1;
    if ((bs_u64)ends[middle] > target) high = middle; else low = middle + 1;
  }
  return (bs_u32)low;
}

// `scratch` holds for each block 2^bits columns and 2^bits arrivals; 2^bits >= 2 (s + 1024). Writes the positions of s columns, ascending, for
// each of k minibatches, and the time of the next arrival of a new column, divided by the sum of the weights. Where `columns` are given, writes
// these in the place of positions, the inclusion probability of each, and the picks before each minibatch; and enters the picks with their places
// into the hash table of their minibatch.
extern "C" __global__ void __launch_bounds__(BS_WIDE) first_arrivals(const bs_i64* __restrict__ ends, bs_i64 count, bs_u32 s,
                                                                      const bs_i64* __restrict__ minibatches, bs_i64 k, bs_u64 seed,
                                                                      bs_u32 tag, bs_u32* scratch, bs_i32 bits, bs_u32* picks,
                                                                      double* __restrict__ times, const bs_i32* __restrict__ columns,
                                                                      double* __restrict__ inclusion, bs_i64* __restrict__ pointers,
                                                                      bs_u32* entered, const bs_i64* __restrict__ starts,
                                                                      bs_u32* __restrict__ numbers) {
  __shared__ double gaps[BS_WIDE], until;
  __shared__ bs_i32 sums[BS_WIDE / 32], last;
  bs_u32 *table = scratch + (bs_i64)blockIdx.x * (2ll << bits), *arrived = table + (1ll << bits);
  const bs_u64 total = (bs_u64)ends[count - 1];
  if (columns && bs_thread() == 0) pointers[0] = 0;
  for (bs_i64 j = blockIdx.x; j < k; j += gridDim.x) {
    const BsStream stream{seed, 0u, (bs_u32)minibatches[j], tag};
    bs_u32* own = picks + j * (bs_i64)s;
    for (bs_u32 i = threadIdx.x; i < 2u << bits; i += BS_WIDE) table[i] = 0xFFFFFFFFu;
    if (threadIdx.x == 0) last = BS_WIDE;
    __syncthreads();
    double time = 0.0;  // of the first thread
    bs_u32 distinct = 0;
    for (bs_u32 first = 0; distinct <= s; first += BS_WIDE) {
      const bs_u32 i = first + threadIdx.x;
      const BsWords words = bs_block(stream, i);
      const bs_u32 column = column_of(ends, count, bs_mulhi((bs_u64)words.v[3] << 32 | words.v[2], total));
      gaps[threadIdx.x] = (double)bs_neg_log2((bs_u64)words.v[1] << 32 | words.v[0]);
      const bs_u32 slot = slot_of(table, bits, column);
      atomicMin(&arrived[slot], i);
      __syncthreads();
      const bool is_new = arrived[slot] == i;
      bs_i32 all;
      const bs_u32 rank = distinct + (bs_u32)bs_block_before<BS_WIDE>((bs_i32)is_new, sums, &all);
      if (is_new && rank < s) own[rank] = column;
      if (is_new && rank == s) last = (bs_i32)threadIdx.x;
      __syncthreads();
      if (threadIdx.x == 0)
        for (bs_i32 t = 0; t < BS_WIDE && t <= last; ++t) time += gaps[t];
      distinct += (bs_u32)all;
      __syncthreads();
    }
    if (threadIdx.x == 0) times[j] = until = time / (double)total;
    sort_block<BS_WIDE>(own, s);
    __syncthreads();
    for (bs_u32 i = threadIdx.x; columns && i < s; i += BS_WIDE) {
      const bs_u32 at = own[i];
      own[i] = (bs_u32)columns[at];
      inclusion[j * (bs_i64)s + i] = bs_inclusion((double)(ends[at] - (at ? ends[at - 1] : 0)), until);
      if (entered) numbers[bs_slot<BS_NUMBERED>(entered, starts, j, own[i])] = (bs_u32)(j * s + i);
    }
    if (columns && threadIdx.x == 0) pointers[j + 1] = (j + 1) * (bs_i64)s;
    __syncthreads();
  }
}
