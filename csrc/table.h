// Tables over the vertices of each minibatch, for kernels: all threads enter at once. Minibatch j has the slots
// starts[j] .. starts[j + 1] - 1. A hash table has a power of two of them, at most half taken, and `vertices` names the vertex of each.
// A direct table (`vertices` null) has n, one for each vertex.
#pragma once
#include "device.h"
#include "hash_row.h"

__device__ __forceinline__ bs_i64 bs_slot(bs_u32* vertices, const bs_i64* starts, bs_i64 j, bs_u32 vertex) {
  const bs_i64 start = starts[j];
  if (!vertices) return start + vertex;
  const bs_u64 mask = (bs_u64)(starts[j + 1] - start) - 1;
  for (bs_u64 at = bs_home(vertex, 64 - bs_leading_zeros(mask));; at = (at + 1) & mask) {
    const bs_u32 before = atomicCAS(&vertices[start + at], bs_free, vertex);
    if (before == bs_free || before == vertex) return start + (bs_i64)at;
  }
}

// The slot of a vertex, or -1 if it was never entered; hash tables only.
__device__ __forceinline__ bs_i64 bs_seek(const bs_u32* vertices, const bs_i64* starts, bs_i64 j, bs_u32 vertex) {
  const bs_i64 start = starts[j];
  const bs_u64 mask = (bs_u64)(starts[j + 1] - start) - 1;
  for (bs_u64 at = bs_home(vertex, 64 - bs_leading_zeros(mask));; at = (at + 1) & mask) {
    const bs_u32 held = vertices[start + at];
    if (held == vertex) return start + (bs_i64)at;
    if (held == bs_free) return -1;
  }
}
