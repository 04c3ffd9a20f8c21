// Philox words of neighbouring counters: a thread makes a block of four.
#include "device.h"
#include "philox.h"

extern "C" __global__ void __launch_bounds__(BS_BLOCK) random_words(bs_u64 seed, bs_u32 tag, bs_u64 first, bs_i64 count, bs_u32 vertex,
                                                                    bs_u32 minibatch, bs_u32* __restrict__ out) {
  const BsStream stream{seed, vertex, minibatch, tag};
  for (bs_i64 i = bs_thread(); i < count; i += bs_threads()) {
    const BsWords words = bs_block(stream, (bs_u32)(first + (bs_u64)i));
#pragma unroll
    for (int j = 0; j < 4; ++j) out[4 * i + j] = words.v[j];
  }
}
