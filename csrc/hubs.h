// Rows so long that 32 warps share one, each a slice of its neighbours. A first launch lists them, a second takes their slices; what it costs
// a row of median length is one comparison.
#pragma once
#include "device.h"

constexpr bs_i64 BS_HUB = 2048;  // a row of more neighbours is a hub: HUB of bulksample/backends/cuda/draws.py
constexpr bs_u64 BS_HUBS = 256;  // hubs whose slices fill a device; each further one is drawn by one warp, as other rows are
constexpr bs_i64 BS_SLICES = 32;

// All 0 before the first launch: LISTED_WORDS of bulksample/backends/cuda/draws.py.
struct Hubs {
  bs_u64 count;          // hubs met, perhaps more than are listed
  bs_u64 done[BS_HUBS];  // slices of each
  bs_i64 rows[BS_HUBS];
};

// Lists a hub, unless enough are listed; returns whether it is. Called by one thread.
__device__ __forceinline__ bool bs_list_hub(Hubs* hubs, bs_i64 row) {
  const bs_u64 at = atomicAdd(&hubs->count, 1ull);
  if (at < BS_HUBS) hubs->rows[at] = row;
  return at < BS_HUBS;
}

// The number of slices of all listed hubs.
__device__ __forceinline__ bs_i64 bs_all_slices(const Hubs* hubs) {
  return (bs_i64)(hubs->count < BS_HUBS ? hubs->count : BS_HUBS) * BS_SLICES;
}

// True if an earlier launch listed the row; called by a warp.
__device__ __forceinline__ bool bs_is_listed(const Hubs* hubs, bs_i64 row) {
  if (hubs->count <= BS_HUBS) return true;
  bool found = false;
  for (bs_u64 i = (bs_u64)bs_lane(); i < BS_HUBS; i += 32) found |= hubs->rows[i] == row;
  return __ballot_sync(BS_ALL, found) != 0;
}

// The neighbours from .. to - 1 of a slice of the row begin .. end - 1; slices begin at multiples of 32 neighbours.
struct Slice {
  bs_i64 from, to;
};

__device__ __forceinline__ Slice bs_slice(bs_i64 begin, bs_i64 end, bs_i64 slice) {
  const bs_i64 each = (end - begin + 32 * BS_SLICES - 1) / (32 * BS_SLICES) * 32, from = begin + slice * each;
  return Slice{from < end ? from : end, from + each < end ? from + each : end};
}
