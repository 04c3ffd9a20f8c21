// Independent draws by weight: weighted_row.h decides what draw t picks. A warp draws a row, so that the lanes share a hub: once for the sum
// of its weights, and once for the running sum, in which each position finds the targets that fall to it. As many picks come before a
// position as there are smaller targets, so picks are written in ascending order.
#include "device.h"
#include "weighted_row.h"

// Counts the picks of each of the parts[k] rows: s if a neighbour has a positive weight, else 0.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) count_weighted(const bs_i64* __restrict__ indptr, const bs_i64* __restrict__ values,
                                                                      const bs_i32* __restrict__ vertices,
                                                                      const bs_i64* __restrict__ parts, bs_i64 k, bs_i64 s,
                                                                      bs_i32* __restrict__ counts) {
  const bs_i64 rows = parts[k];
  for (bs_i64 r = bs_thread(); r < rows; r += bs_threads()) {
    const bs_i64 end = indptr[vertices[r] + 1];
    bs_i64 at = indptr[vertices[r]];
    while (at < end && values && values[at] == 0) ++at;
    counts[r] = (bs_i32)(at < end ? s : 0);
  }
}

__device__ __forceinline__ bs_u64 weight_at(const bs_i64* values, bs_i64 at) { return values ? (bs_u64)values[at] : 1; }

extern "C" __global__ void __launch_bounds__(BS_BLOCK) draw_weighted(const bs_i64* __restrict__ indptr, const bs_i32* __restrict__ indices,
                                                                     const bs_i64* __restrict__ values, const bs_i32* __restrict__ vertices,
                                                                     const bs_i32* __restrict__ names, const bs_i64* __restrict__ parts,
                                                                     bs_i64 k, const bs_i64* __restrict__ minibatches, bs_u64 seed,
                                                                     bs_u32 tag, const bs_i64* __restrict__ pointers,
                                                                     bs_i32* __restrict__ columns) {
  const bs_i64 rows = parts[k];
  const bs_u32 lane = (bs_u32)bs_lane();
  for (bs_i64 r = bs_thread() / 32; r < rows; r += bs_threads() / 32) {
    const bs_i64 begin = indptr[vertices[r]], end = indptr[vertices[r] + 1], to = pointers[r];
    const bs_u32 s = (bs_u32)(pointers[r + 1] - to);
    if (s == 0) continue;
    const BsStream stream{seed, (bs_u32)names[r], (bs_u32)minibatches[bs_row_of(parts, k, r)], tag};
    bs_u64 total = 0, before = 0, of_warp;
    for (bs_i64 at = begin + lane; at < end; at += 32) total += weight_at(values, at);
    bs_warp_before(total, &total);
    const bs_u64 first_target = lane < s ? bs_target(stream, lane, total) : 0;
    auto target_of = [&](bs_u32 t) { return t == lane ? first_target : t < s ? bs_target(stream, t, total) : 0; };
    for (bs_i64 first = begin; first < end; first += 32, before += of_warp) {
      const bs_i64 at = first + lane;
      const bs_u64 own = at < end ? weight_at(values, at) : 0, low = before + bs_warp_before(own, &of_warp);
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
      for (bs_u32 i = 0; i < mine; ++i) columns[to + smaller + i] = indices[at];
    }
  }
}
