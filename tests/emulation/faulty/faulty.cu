// Kernels with the mistakes that the emulation must show; see test_emulation.py.
#include "look_back.h"

// Half of the block never reaches the barrier.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) lonely_barrier(bs_i32* out) {
  if (threadIdx.x < 64) __syncthreads();
  out[threadIdx.x] = 1;
}

// Lane 0 leaves before its warp votes.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) lonely_ballot(bs_i32* out) {
  if (bs_lane() == 0) return;
  out[threadIdx.x] = (bs_i32)__ballot_sync(BS_ALL, true);
}

// A sum without an atomic: between reading and writing, others may run.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) forgotten_barrier(bs_i32* out) {
  __shared__ bs_i32 told;
  if (threadIdx.x == 5) told = 7;
  out[threadIdx.x] = told;
}

// Writes one element past the end.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) one_too_many(bs_i32* out, bs_i64 n) {
  for (bs_i64 i = bs_thread(); i <= n; i += bs_threads()) out[i] = 1;
}

// Shifts an integer of 32 bits by as many as it is given.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) too_far(bs_i32* out, bs_i32 by) {
  for (bs_i64 i = bs_thread(); i < 4; i += bs_threads()) out[i] = 1 << by;
}

// Neighbours exchange numbers in shared memory; only the warp waits, so the last lane of a warp may read too early.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) warp_for_block(bs_i32* out) {
  __shared__ bs_i32 told[BS_BLOCK];
  told[threadIdx.x] = (bs_i32)threadIdx.x;
  __syncwarp();
  out[threadIdx.x] = told[(threadIdx.x + 1) % BS_BLOCK];
}

// Blocks add to one sum without an atomic.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) torn_sum(bs_i32* out) {
  if (threadIdx.x == 0) out[0] += (bs_i32)blockIdx.x;
}

// A thread reads what others change by atomics.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) read_too_early(bs_i32* out) {
  __shared__ bs_i32 sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  atomicAdd(&sum, 1);
  out[threadIdx.x] = sum;
}

// Nothing is wrong with this one: barriers, a warp that waits for itself, atomics, and bytes of one word that belong to different threads.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) sound(bs_i32* out) {
  __shared__ bs_i32 sum, told[BS_BLOCK];
  __shared__ unsigned char bytes[BS_BLOCK];
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  told[threadIdx.x] = (bs_i32)threadIdx.x;
  bytes[threadIdx.x] = (unsigned char)threadIdx.x;
  __syncwarp();
  atomicAdd(&sum, told[threadIdx.x ^ 1]);
  __syncthreads();
  if (blockIdx.x == 0) out[threadIdx.x] = sum + bytes[BS_BLOCK - 1 - threadIdx.x];
}

// Block 0 writes, sets a word, and the others read: they wait for the word, but what orders writing and reading is forgotten.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) word_without_a_fence(bs_i32* out, bs_u64* word) {
  if (blockIdx.x == 0) {
    if (threadIdx.x == 0) out[0] = 5;
    __syncthreads();
    if (threadIdx.x == 0) bs_store(word, (bs_u64)1);
  } else if (threadIdx.x == 0) {
    bs_wait(word);
    out[blockIdx.x] = out[0];
  }
}

// The same, but block 0 writes once more after it has told.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) told_too_early(bs_i32* out, bs_u64* word) {
  __shared__ bs_u64 told;
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    bs_publish(word, 1ull);
    out[0] = 5;
  }
  if (blockIdx.x == 0) return;
  bs_wait_for(word, &told);
  if (threadIdx.x == 0) out[blockIdx.x] = out[0];
}

// Sound: a chain of blocks, each of which waits for the one before and tells the next.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) told_in_a_chain(bs_i32* out, bs_u64* words) {
  __shared__ bs_u64 told;
  const bs_i32 own = (bs_i32)blockIdx.x;
  if (own > 0) bs_wait_for(&words[own - 1], &told);
  if (threadIdx.x == 0) {
    out[own] = own > 1 ? out[own - 1] + out[own - 2] : 1;
    bs_publish(&words[own], 1ull);
  }
}

// The block that comes last leaves its number.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) last_block(bs_i32* out) {
  if (threadIdx.x == 0) out[0] = (bs_i32)blockIdx.x;
}

// Sound: two threads wait for the host and then for each other; leaves how often each looked for the other, 0 if it gave up.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) waits_for_the_host(bs_i32* out, bs_u32* words) {
  if (threadIdx.x > 1) return;
  bs_store(&words[0], 1u);  // the launch has begun
  bs_wait_below(&words[1], 1u);
  bs_store(&words[2 + threadIdx.x], 1u);
  bs_i32 looks = 1;
  while (!bs_load(&words[3 - threadIdx.x]) && looks < 1 << 20) ++looks;
  out[threadIdx.x] = looks < 1 << 20 ? looks : 0;
}
