// A warp draws by weight from one row: the lanes share its running sum, in which each position finds the targets that fall to it. As many
// picks come before a position as there are smaller targets, so picks come in ascending order.
#pragma once
#include "hubs.h"
#include "weighted_row.h"

__device__ __forceinline__ bs_u64 weight_at(const bs_i64* values, bs_i64 at) { return values ? (bs_u64)values[at] : 1; }

__device__ __forceinline__ bs_u64 sum_of(const bs_i64* values, bs_i64 from, bs_i64 to) {
  bs_u64 sum = 0;
  for (bs_i64 at = from + bs_lane(); at < to; at += 32) sum += weight_at(values, at);
  bs_warp_before(sum, &sum);
  return sum;
}

// True if a target of s is at least `before` and less than `held` above it.
__device__ __forceinline__ bool has_target(const BsStream& stream, bs_u32 s, bs_u64 total, bs_u64 before, bs_u64 held) {
  bs_u32 any = 0;
  for (bs_u32 group = 0; group < s; group += 32) {
    const bs_u32 t = group + (bs_u32)bs_lane();
    const bs_u64 target = t < s ? bs_target(stream, t, total) : 0;
    any |= __ballot_sync(BS_ALL, t < s && target >= before && target - before < held);
  }
  return any != 0;
}

// Calls write(i, at) for the picks i among the neighbours from .. to - 1, whose weights follow on weights of sum `before`; the row's have
// sum `total`.
template <class Write>
__device__ __forceinline__ void pick_among(const bs_i64* values, bs_i64 from, bs_i64 to, bs_u64 before, bs_u64 total, const BsStream& stream,
                                           bs_u32 s, Write write) {
  const bs_u32 lane = (bs_u32)bs_lane();
  const bs_u64 first_target = lane < s ? bs_target(stream, lane, total) : 0;
  auto target_of = [&](bs_u32 t) { return t == lane ? first_target : t < s ? bs_target(stream, t, total) : 0; };
  bs_u64 of_warp;
  for (bs_i64 first = from; first < to; first += 32, before += of_warp) {
    const bs_i64 at = first + lane;
    const bs_u64 own = at < to ? weight_at(values, at) : 0, low = before + bs_warp_before(own, &of_warp);
    bs_u32 any = 0;  // is there a target among these positions?
    for (bs_u32 group = 0; group < s; group += 32) {
      const bs_u64 target = target_of(group + lane);
      any |= __ballot_sync(BS_ALL, group + lane < s && target >= before && target - before < of_warp);
    }
    if (!any) continue;
    bs_u32 smaller = 0, mine = 0;  // targets below the running sum, and those that fall to this position
    for (bs_u32 group = 0; group < s; group += 32) {
      const bs_u64 target = target_of(group + lane);
      for (bs_u32 i = 0; i < 32 && group + i < s; ++i) {
        const bs_u64 asked = __shfl_sync(BS_ALL, target, (int)i);
        smaller += asked < low;
        mine += asked >= low && asked - low < own;
      }
    }
    for (bs_u32 i = 0; i < mine; ++i) write(smaller + i, at);
  }
}

// The same for a slice of a hub; sums[i] is the sum of the weights of slice i of 32.
template <class Write>
__device__ __forceinline__ void pick_in_slice(const bs_i64* values, const Slice& own, bs_i64 slice, const bs_u64* sums, const BsStream& stream,
                                              bs_u32 s, Write write) {
  bs_u64 total;
  const bs_u64 sum = sums[bs_lane()], before = bs_warp_before(sum, &total);
  const bs_u64 earlier = __shfl_sync(BS_ALL, before, (int)slice), held = __shfl_sync(BS_ALL, sum, (int)slice);
  if (has_target(stream, s, total, earlier, held)) pick_among(values, own.from, own.to, earlier, total, stream, s, write);
}
