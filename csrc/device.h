// Shared by the CUDA kernels: the indices of a thread, and the walk of a warp over rows of entries that lie end to end.
#pragma once
#include "host_device.h"

constexpr bs_u32 BS_ALL = 0xFFFFFFFFu;  // every lane of a warp
constexpr int BS_BLOCK = 128;           // threads of a block
constexpr int BS_WIDE = 1024;           // of one that draws for a whole mini-batch, where few blocks have work
constexpr bs_i64 BS_TILE = 512;         // entries that a warp walks over at once

__device__ __forceinline__ bs_i64 bs_thread() { return (bs_i64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ bs_i64 bs_threads() { return (bs_i64)gridDim.x * blockDim.x; }
__device__ __forceinline__ bs_i32 bs_lane() { return (bs_i32)(threadIdx.x & 31u); }

// Words that other blocks of the launch may read or write at the same time; the emulation gives both its own meaning.
#if !defined(BS_EMULATED)
template <class T>
__device__ __forceinline__ T bs_load(const T* at) {
  return *(const volatile T*)at;
}
template <class T>
__device__ __forceinline__ void bs_store(T* at, T value) {
  *(volatile T*)at = value;
}
// What orders the accesses of two blocks: one writes, a fence, and sets the word; the other finds it set, a fence, and reads.
__device__ __forceinline__ void bs_released(const void*) {}
__device__ __forceinline__ void bs_acquired(const void*) { __threadfence(); }
#endif

// True for the block that adds the last of `all` to a count; it sees what the others wrote before. `is_last` is shared.
__device__ __forceinline__ bool bs_comes_last(bs_u64* count, bs_i64 own, bs_i64 all, bool* is_last) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    bs_released(count);
    *is_last = (bs_i64)atomicAdd(count, (bs_u64)own) + own == all;
    if (*is_last) bs_acquired(count);
  }
  __syncthreads();
  __threadfence();
  return *is_last;
}

// Sets a word that other blocks wait for: they see what this thread wrote or saw before (`bs_wait_for` of look_back.h).
__device__ __forceinline__ void bs_publish(bs_u64* at, bs_u64 word) {
  __threadfence();
  bs_released(at);
  bs_store(at, word);
}

// The row that entry `at` < pointers[rows] lies in.
__device__ __forceinline__ bs_i64 bs_row_of(const bs_i64* pointers, bs_i64 rows, bs_i64 at) {
  bs_i64 low = 0, high = rows;  // pointers[low] <= at < pointers[high]
  while (high - low > 1) {
    const bs_i64 middle = (low + high) >> 1;
    if (pointers[middle] <= at) low = middle; else high = middle;
  }
  return low;
}

// Calls visit(row, at, payload(row)) for every entry `at` of `rows` rows. Neighbouring lanes take neighbouring entries,
// whatever the lengths: many warps share a long row, and many short rows share a warp. Rows are taken 32 at a time,
// a lane holding the end and the payload of one, so that an entry finds its row by five shuffles.
template <class Payload, class Visit>
__device__ __forceinline__ void bs_walk(const bs_i64* __restrict__ pointers, bs_i64 rows, Payload payload, Visit visit) {
  const bs_i64 entries = rows > 0 ? pointers[rows] : 0;
  const bs_i32 lane = bs_lane();
  for (bs_i64 first = bs_thread() / 32 * BS_TILE; first < entries; first += bs_threads() / 32 * BS_TILE) {
    const bs_i64 last = first + BS_TILE < entries ? first + BS_TILE : entries;
    bs_i64 row = bs_row_of(pointers, rows, first), from = first;
    while (from < last) {
      const bs_i64 mine = row + lane < rows ? row + lane : rows - 1, end = pointers[mine + 1];
      const bs_i32 ends = (bs_i32)((end < last ? end : last) - first);  // within the tile
      const bs_i64 held = payload(mine), reach = first + __shfl_sync(BS_ALL, ends, 31);
      for (; from < reach; from += 32) {
        const bs_i32 at = (bs_i32)(from - first) + lane;
        bs_i32 step = 0;
#pragma unroll
        for (bs_i32 half = 16; half > 0; half >>= 1)
          if (__shfl_sync(BS_ALL, ends, step + half - 1) <= at) step += half;
        const bs_i64 own = __shfl_sync(BS_ALL, held, step);
        if (first + at < reach) visit(row + step, first + at, own);
      }
      from = reach;
      row += 32;
    }
  }
}

// The sum of `value` over the lanes before this one, and over all of them.
template <class T>
__device__ __forceinline__ T bs_warp_before(T value, T* all) {
  T sum = value;
#pragma unroll
  for (bs_i32 apart = 1; apart < 32; apart *= 2) {
    const T other = __shfl_up_sync(BS_ALL, sum, apart);
    if (bs_lane() >= apart) sum += other;
  }
  *all = __shfl_sync(BS_ALL, sum, 31);
  return sum - value;
}

// The same over the threads of a block; `sums` is shared, a place for each warp. A barrier for all of them.
template <int THREADS = BS_BLOCK, class T>
__device__ __forceinline__ T bs_block_before(T value, T* sums, T* all) {
  T of_warp, earlier = 0, total = 0;
  const T before = bs_warp_before(value, &of_warp);
  if (bs_lane() == 31) sums[threadIdx.x / 32] = of_warp;
  __syncthreads();
  for (bs_u32 w = 0; w < THREADS / 32; ++w) {
    if (w < threadIdx.x / 32) earlier += sums[w];
    total += sums[w];
  }
  __syncthreads();
  *all = total;
  return earlier + before;
}
