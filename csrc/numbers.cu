// Numbers the vertices of each minibatch in order of first occurrence, with all threads at once.
// A slot holds the number of its vertex, below 2^31, or 2^31 + the smallest place at which a new vertex was found. So a minimum
// settles every race, and known vertices win. First occurrences are then counted, and take the next numbers.
#include "table.h"

constexpr bs_u32 NEW = 0x80000000u;

// Known vertices take their places as numbers.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) enter_known(const bs_i64* __restrict__ pointers, const bs_i32* __restrict__ known,
                                                                   bs_i64 k, bs_u32* table, const bs_i64* __restrict__ starts,
                                                                   bs_u32* numbers) {
  const bs_i64 count = pointers[k];
  for (bs_i64 i = bs_thread(); i < count; i += bs_threads()) {
    const bs_i64 j = bs_row_of(pointers, k, i);
    numbers[bs_slot(table, starts, j, (bs_u32)known[i])] = (bs_u32)(i - pointers[j]);
  }
}

// Finds the slot of each vertex found, and enters its first place there. Minibatch j found pointers[j] .. pointers[j + 1] - 1.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) enter_found(const bs_i64* __restrict__ pointers, const bs_i32* __restrict__ found,
                                                                   bs_i64 k, bs_u32* table, const bs_i64* __restrict__ starts,
                                                                   bs_u32* numbers, bs_i64* __restrict__ slots) {
  const bs_i64 count = pointers[k];
  for (bs_i64 i = bs_thread(); i < count; i += bs_threads()) {
    const bs_i64 j = bs_row_of(pointers, k, i), slot = bs_slot(table, starts, j, (bs_u32)found[i]);
    slots[i] = slot;
    atomicMin(&numbers[slot], NEW + (bs_u32)(i - pointers[j]));
  }
}

// out[i] = a[i] + b[i].
extern "C" __global__ void __launch_bounds__(BS_BLOCK) add_pointers(const bs_i64* __restrict__ a, const bs_i64* __restrict__ b,
                                                                    bs_i64 count, bs_i64* __restrict__ out) {
  for (bs_i64 i = bs_thread(); i < count; i += bs_threads()) out[i] = a[i] + b[i];
}

// Marks the first place of each new vertex; the last ones of `room` places may be empty.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) mark_first(const bs_i64* __restrict__ pointers, bs_i64 k, bs_i64 room,
                                                                  const bs_u32* __restrict__ numbers, const bs_i64* __restrict__ slots,
                                                                  bs_i32* __restrict__ marks) {
  const bs_i64 count = pointers[k];
  for (bs_i64 i = bs_thread(); i < room; i += bs_threads())
    marks[i] = i < count && numbers[slots[i]] == NEW + (bs_u32)(i - pointers[bs_row_of(pointers, k, i)]);
}

// Writes ends[j], the known and the new vertices of the minibatches before j; after these k + 1 the number of vertices found before
// each.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) extend_pointers(const bs_i64* __restrict__ known, const bs_i64* __restrict__ pointers,
                                                                       bs_i64 k, const bs_i64* __restrict__ ranks,
                                                                       bs_i64* __restrict__ ends) {
  for (bs_i64 j = bs_thread(); j <= k; j += bs_threads()) {
    ends[j] = known[j] + ranks[pointers[j]];
    ends[k + 1 + j] = pointers[j];
  }
}

extern "C" __global__ void __launch_bounds__(BS_BLOCK) keep_known(const bs_i64* __restrict__ known_pointers, const bs_i32* __restrict__ known,
                                                                  bs_i64 k, const bs_i64* __restrict__ ends, bs_i32* __restrict__ vertices) {
  const bs_i64 count = known_pointers[k];
  for (bs_i64 i = bs_thread(); i < count; i += bs_threads()) {
    const bs_i64 j = bs_row_of(known_pointers, k, i);
    vertices[ends[j] + i - known_pointers[j]] = known[i];
  }
}

// Appends new vertices after the known ones, in the order of their first places.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) add_new(const bs_i64* __restrict__ known_pointers, const bs_i64* __restrict__ pointers,
                                                               const bs_i32* __restrict__ found, bs_i64 k,
                                                               const bs_i64* __restrict__ ranks, const bs_i64* __restrict__ slots,
                                                               const bs_i64* __restrict__ ends, bs_u32* __restrict__ numbers,
                                                               bs_i32* __restrict__ vertices) {
  const bs_i64 count = pointers[k];
  for (bs_i64 i = bs_thread(); i < count; i += bs_threads()) {
    if (ranks[i + 1] == ranks[i]) continue;
    const bs_i64 j = bs_row_of(pointers, k, i);
    const bs_i64 number = known_pointers[j + 1] - known_pointers[j] + ranks[i] - ranks[pointers[j]];
    numbers[slots[i]] = (bs_u32)number;
    vertices[ends[j] + number] = found[i];
  }
}

extern "C" __global__ void __launch_bounds__(BS_BLOCK) read_numbers(const bs_i64* __restrict__ pointers, bs_i64 k,
                                                                    const bs_u32* __restrict__ numbers, const bs_i64* __restrict__ slots,
                                                                    bs_i32* __restrict__ local) {
  const bs_i64 count = pointers[k];
  for (bs_i64 i = bs_thread(); i < count; i += bs_threads()) local[i] = (bs_i32)numbers[slots[i]];
}

// out[i] = pointers[at[i]]: the first entry of the rows of each minibatch.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) pick_pointers(const bs_i64* __restrict__ pointers, const bs_i64* __restrict__ at,
                                                                     bs_i64 count, bs_i64* __restrict__ out) {
  for (bs_i64 i = bs_thread(); i < count; i += bs_threads()) out[i] = pointers[at[i]];
}

// Keeps the vertices of each minibatch beyond the first ones, which `known` counts, and makes their row pointers.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) drop_known(const bs_i64* __restrict__ known, const bs_i64* __restrict__ ends, bs_i64 k,
                                                                  const bs_i32* __restrict__ vertices, bs_i64* __restrict__ pointers,
                                                                  bs_i32* __restrict__ fresh) {
  const bs_i64 count = ends[k];
  for (bs_i64 j = bs_thread(); j <= k; j += bs_threads()) pointers[j] = ends[j] - known[j];
  for (bs_i64 i = bs_thread(); i < count; i += bs_threads()) {
    const bs_i64 j = bs_row_of(ends, k, i), held = known[j + 1] - known[j];
    if (i - ends[j] >= held) fresh[i - known[j + 1]] = vertices[i];
  }
}
