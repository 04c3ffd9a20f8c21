// Kernels with the mistakes that the emulation must show; see test_emulation.py.
#include "device.h"

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
