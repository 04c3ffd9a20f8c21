// Rows of a matrix as they are stored: their type, and where there is a cache, their place.
#pragma once
#include "half_row.h"

enum Type { FP32 = 0, FP16 = 1, BF16 = 2 };

// Finds row `row`: its array, and its place there.
struct Source {
  const void* from;
  bs_i64 row;
};

__device__ __forceinline__ Source source_of(const void* from, const void* hot, const bs_i32* slots, bs_i32 row) {
  const bs_i32 slot = slots ? slots[row] : -1;
  return slot < 0 ? Source{from, row} : Source{hot, slot};
}

__device__ __forceinline__ float read_as(const void* from, bs_i64 at, bs_i32 type) {
  if (type == FP32) return ((const float*)from)[at];
  const bs_u32 half = ((const unsigned short*)from)[at];
  return type == FP16 ? bs_from_fp16(half) : bs_from_bf16(half);
}

// Four neighbouring numbers, read at once. Their place is a multiple of four, and the array lies at a multiple of their bytes.
constexpr bs_i32 WIDE = 4;

struct alignas(16) Four {
  float of[WIDE];
};

struct alignas(8) FourHalves {
  unsigned short of[WIDE];
};

__device__ __forceinline__ Four read_four(const void* from, bs_i64 at, bs_i32 type) {
  if (type == FP32) return *(const Four*)((const float*)from + at);
  const FourHalves halves = *(const FourHalves*)((const unsigned short*)from + at);
  Four out;
#pragma unroll
  for (bs_i32 i = 0; i < WIDE; ++i) out.of[i] = type == FP16 ? bs_from_fp16(halves.of[i]) : bs_from_bf16(halves.of[i]);
  return out;
}
