// Tables over the vertices of each minibatch, for kernels: all threads enter at once. Minibatch j has the slots
// starts[j] .. starts[j + 1] - 1. A hash table has a power of two of them, at most half taken, and `vertices` names the vertex of each,
// which is the first of WORDS words of a slot: with its number beside it (WORDS = 2), both are read together. What is returned is the
// place of the slot's first word, WORDS times the slot. A direct table (`vertices` null) has n slots of one word, one for each vertex.
#pragma once
#include "device.h"
#include "hash_row.h"

// The slots of a hash table for `held` columns: a power of two of them, at least twice as many; none if it holds nothing.
__device__ __forceinline__ bs_i64 bs_table_slots(bs_i64 held) { return held ? 1ll << (64 - bs_leading_zeros((bs_u64)(2 * held - 1))) : 0; }

constexpr int BS_NUMBERED = 2;  // words of a slot that holds a vertex and its number

template <int WORDS>
__device__ __forceinline__ bs_i64 bs_slot(bs_u32* vertices, const bs_i64* starts, bs_i64 j, bs_u32 vertex) {
  const bs_i64 start = starts[j];
  if (!vertices) return start + vertex;
  const bs_u64 mask = (bs_u64)(starts[j + 1] - start) - 1;
  for (bs_u64 at = bs_home(vertex, 64 - bs_leading_zeros(mask));; at = (at + 1) & mask) {
    const bs_i64 place = WORDS * (start + (bs_i64)at);
    const bs_u32 before = atomicCAS(&vertices[place], bs_free, vertex);
    if (before == bs_free || before == vertex) return place;
  }
}

constexpr bs_u32 BS_NEW = 0x80000000u;  // the number of a new vertex is this and the place at which it was first found, until it is known

// Enters place `i` - `first` of a vertex that was found there, unless its number or an earlier place is known; keeps its slot.
__device__ __forceinline__ void bs_enter_place(bs_u32* numbers, bs_i64* slots, bs_i64 slot, bs_i64 i, bs_i64 first) {
  if (slots) slots[i] = slot;
  atomicMin(&numbers[slot], BS_NEW + (bs_u32)(i - first));
}

__device__ __forceinline__ void bs_enter(bs_u32* table, const bs_i64* starts, bs_u32* numbers, bs_i64* slots, bs_i64 j, bs_i32 vertex,
                                         bs_i64 i, bs_i64 first) {
  bs_enter_place(numbers, slots, bs_slot<BS_NUMBERED>(table, starts, j, (bs_u32)vertex), i, first);
}

constexpr int BS_PAIRED = 4;  // words of a slot that holds a tree and its vertex, and their number; a hash table

// The same for a vertex of a tree: minibatches of disjoint trees.
__device__ __forceinline__ bs_i64 bs_pair_slot(bs_u32* table, const bs_i64* starts, bs_i64 j, bs_i32 tree, bs_u32 vertex) {
  constexpr bs_u64 FREE_PAIR = 0xFFFFFFFFFFFFFFFFull;
  const bs_i64 start = starts[j];
  const bs_u64 pair = (bs_u64)tree << 32 | vertex, mask = (bs_u64)(starts[j + 1] - start) - 1;
  for (bs_u64 at = bs_pair_home(pair, 64 - bs_leading_zeros(mask));; at = (at + 1) & mask) {
    const bs_i64 place = BS_PAIRED * (start + (bs_i64)at);
    const bs_u64 before = atomicCAS((bs_u64*)(table + place), FREE_PAIR, pair);
    if (before == FREE_PAIR || before == pair) return place;
  }
}

// The slot of a vertex, or -1 if it was never entered; hash tables only.
template <int WORDS>
__device__ __forceinline__ bs_i64 bs_seek(const bs_u32* vertices, const bs_i64* starts, bs_i64 j, bs_u32 vertex) {
  const bs_i64 start = starts[j];
  const bs_u64 mask = (bs_u64)(starts[j + 1] - start) - 1;
  for (bs_u64 at = bs_home(vertex, 64 - bs_leading_zeros(mask));; at = (at + 1) & mask) {
    const bs_u32 held = vertices[WORDS * (start + (bs_i64)at)];
    if (held == vertex) return WORDS * (start + (bs_i64)at);
    if (held == bs_free) return -1;
  }
}
