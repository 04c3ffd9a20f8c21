// Rows to records of b-bit codes and a header, and back: a warp takes a row, a lane four neighbouring columns, whose random
// words are one Philox block. Grid, code and bits are decided in quantise_row.h.
#include "device.h"
#include "quantise_row.h"

using Byte = unsigned char;

// Orders as floats do.
__device__ __forceinline__ bs_i32 ordered(float x) {
  const bs_i32 bits = (bs_i32)bs_float_bits(x);
  return bits ^ ((bits >> 31) & 0x7FFFFFFF);
}
__device__ __forceinline__ float unordered(bs_i32 i) {  // no negative zero
  return bs_bits_float((bs_u32)(i ^ ((i >> 31) & 0x7FFFFFFF))) + 0.0f;
}

__device__ __forceinline__ void store(bs_u32 word, bs_i32 bytes, Byte* out) {
  for (bs_i32 i = 0; i < bytes; ++i) out[i] = (Byte)(word >> (8 * i));
}
__device__ __forceinline__ bs_u32 load(const Byte* in, bs_i32 bytes) {
  bs_u32 word = 0;
  for (bs_i32 i = 0; i < bytes; ++i) word |= (bs_u32)in[i] << (8 * i);
  return word;
}

// `nearest` rounds without random words. `refused` receives the first row with a number that cannot be rounded.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) quantise_rows(const float* __restrict__ x, bs_i64 m, bs_i64 f, bs_i32 b, bs_i32 wide,
                                                                     const bs_i32* __restrict__ names, bs_i32 nearest, bs_u64 seed,
                                                                     bs_u32 tag, bs_u32 receiver, Byte* __restrict__ records,
                                                                     bs_u64* __restrict__ refused) {
  const bs_i64 packed = (f * b + 7) / 8;
  const bs_i32 half = wide ? 4 : 2;
  const bs_u32 top = (1u << b) - 1u;
  for (bs_i64 r = bs_thread() / 32; r < m; r += bs_threads() / 32) {
    const float* row = x + r * f;
    Byte* record = records + r * (packed + 2 * half);
    bs_i32 low = 0x7FFFFFFF, high = -0x7FFFFFFF - 1;
    bs_u32 largest = 0;
    for (bs_i64 c = bs_lane(); c < f; c += 32) {
      const bs_i32 key = ordered(row[c]);
      const bs_u32 size = bs_float_bits(row[c]) & 0x7FFFFFFFu;
      low = key < low ? key : low;
      high = key > high ? key : high;
      largest = size > largest ? size : largest;
    }
#pragma unroll
    for (bs_i32 apart = 16; apart > 0; apart /= 2) {
      const bs_i32 lower = __shfl_xor_sync(BS_ALL, low, apart), higher = __shfl_xor_sync(BS_ALL, high, apart);
      const bs_u32 larger = __shfl_xor_sync(BS_ALL, largest, apart);
      low = lower < low ? lower : low;
      high = higher > high ? higher : high;
      largest = larger > largest ? larger : largest;
    }
    if (largest >= BS_TOO_LARGE) {
      if (bs_lane() == 0) atomicMin(refused, (bs_u64)r);
      continue;
    }
    const BsHeader header = bs_header(f ? unordered(low) : 0.0f, f ? unordered(high) : 0.0f, top, wide);
    const BsGrid grid = bs_grid(header, wide);
    const bool constant = bs_is_constant(header, wide);
    const BsStream stream{seed, (bs_u32)names[r], receiver, tag};
    for (bs_i64 c = 4 * bs_lane(); c < f; c += 128) {
      const BsWords words = nearest ? BsWords{{BS_NEAREST, BS_NEAREST, BS_NEAREST, BS_NEAREST}} : bs_block(stream, (bs_u32)(c >> 2));
      bs_u32 codes = 0;
#pragma unroll
      for (bs_i32 i = 0; i < 4; ++i) {
        if (c + i >= f) continue;
        const bs_u32 code = constant ? (c + i == 0 ? bs_float_bits(unordered(low)) & 1u : 0u) : bs_code(row[c + i], grid, top, words.v[i]);
        codes |= code << (i * b);
      }
      const bs_i64 left = packed - c * b / 8;
      store(codes, (bs_i32)(left < b / 2 ? left : b / 2), record + c * b / 8);  // four codes fill b / 2 bytes
    }
    if (bs_lane() == 0) {
      store(header.zero, half, record + packed);
      store(header.step, half, record + packed + half);
    }
  }
}

extern "C" __global__ void __launch_bounds__(BS_BLOCK) dequantise_rows(const Byte* __restrict__ records, bs_i64 m, bs_i64 f, bs_i32 b,
                                                                       bs_i32 wide, float* __restrict__ x) {
  const bs_i64 packed = (f * b + 7) / 8;
  const bs_i32 half = wide ? 4 : 2;
  for (bs_i64 r = bs_thread() / 32; r < m; r += bs_threads() / 32) {
    const Byte* record = records + r * (packed + 2 * half);
    const BsHeader header{load(record + packed, half), load(record + packed + half, half)};
    const BsGrid grid = bs_grid(header, wide);
    const bool constant = bs_is_constant(header, wide);
    for (bs_i64 c = bs_lane(); c < f; c += 32)
      x[r * f + c] = constant ? bs_constant(header, record[0]) : bs_decoded(bs_code_at(record, c, b), grid);
  }
}
