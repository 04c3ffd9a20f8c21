// What the counters of a minibatch's draws name. The epoch stands in the tag; or in the high 32 bits of the minibatch, where the tag
// leaves it out, so that launches which are replayed are of any epoch.
#pragma once
#include "device.h"
#include "philox.h"

__device__ __forceinline__ BsStream bs_stream_of(bs_u64 seed, bs_u32 vertex, bs_i64 minibatch, bs_u32 tag) {
  return BsStream{seed, vertex, (bs_u32)minibatch, tag | (bs_u32)(minibatch >> 32)};
}
