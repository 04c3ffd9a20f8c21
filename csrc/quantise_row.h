// One row as b-bit codes on a grid of its own: which grid, which code, which bits. bulksample/backends/quantiser.py
// is the same in numpy, and backends/base.py states the meaning.
//
// Every operation is one that all devices round alike: float64 differences and quotients, of which none can be
// contracted (no product is followed by a sum, but for q * step, which is exact), and integer shifts.
#pragma once
#include "philox.h"

constexpr bs_u32 BS_NEAREST = 0x80000000u;      // the word that rounds to the nearest code, ties down
constexpr bs_u32 BS_TOO_LARGE = 0x7E800000u;    // bits of 2^126: from here on, infinity and what is no number included
constexpr bs_u32 BS_CONSTANT_ROW = 0x8000u;     // the sign bit of the step, which is never negative

BS_HD bs_u32 bs_float_bits(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x);
#else
  bs_u32 bits;
  __builtin_memcpy(&bits, &x, 4);
  return bits;
#endif
}

BS_HD float bs_bits_float(bs_u32 bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  float x;
  __builtin_memcpy(&x, &bits, 4);
  return x;
#endif
}

// Rounds x >= 0 up to float32.
BS_HD float bs_float_up(double x) {
  const float near = (float)x;
  return (double)near < x ? bs_bits_float(bs_float_bits(near) + 1u) : near;
}

// The header beside the codes: two float32, or their upper halves if it is narrow.
struct BsHeader {
  bs_u32 zero, step;
};

struct BsGrid {
  double zero, step;  // code q stands for zero + q step
};

BS_HD bool bs_is_constant(BsHeader header, bool wide) { return !wide && (header.step & BS_CONSTANT_ROW); }

// The header of a row with minimum lo and maximum hi, top = 2^b - 1. Narrow: zero is rounded down and step up, so that
// the row lies on the grid that both sides use. A constant row fits 31 bits of the header and the first code.
BS_HD BsHeader bs_header(float lo, float hi, bs_u32 top, bool wide) {
  const bs_u32 bits = bs_float_bits(lo);
  if (wide) return BsHeader{bits, bs_float_bits(bs_float_up(((double)hi - (double)lo) / (double)top))};
  if (lo == hi) return BsHeader{bits >> 16, BS_CONSTANT_ROW | ((bits & 0xFFFFu) >> 1)};
  const bs_u32 zero = (bits >> 16) + (bs_u32)(lo < 0.0f && (bits & 0xFFFFu));
  const float step = bs_float_up(((double)hi - (double)bs_bits_float(zero << 16)) / (double)top);
  return BsHeader{zero, (bs_float_bits(step) + 0xFFFFu) >> 16};
}

BS_HD BsGrid bs_grid(BsHeader header, bool wide) {
  const int shift = wide ? 0 : 16;
  return BsGrid{(double)bs_bits_float(header.zero << shift), (double)bs_bits_float(header.step << shift)};
}

// The code of x: the whole part of its place on the grid, and one more with probability the rest; never above top.
BS_HD bs_u32 bs_code(float x, BsGrid grid, bs_u32 top, bs_u32 word) {
  if (grid.step == 0.0) return 0;
  const double place = ((double)x - grid.zero) / grid.step;
  const bs_u32 whole = (bs_u32)(bs_i32)place;
  const bs_u32 code = whole + (bs_u32)((double)word < (place - (double)whole) * 4294967296.0);
  return code < top ? code : top;
}

BS_HD float bs_decoded(bs_u32 code, BsGrid grid) { return (float)(grid.zero + (double)code * grid.step); }

// The value of a constant row, whose first code is `code`.
BS_HD float bs_constant(BsHeader header, bs_u32 code) {
  return bs_bits_float(header.zero << 16 | (header.step & 0x7FFFu) << 1 | (code & 1u));
}

// Code k of a row lies in bits k b .. k b + b - 1, the lowest first.
BS_HD bs_u32 bs_code_at(const unsigned char* codes, bs_i64 k, int b) {
  return (bs_u32)(codes[k * b >> 3] >> (k * b & 7)) & ((1u << b) - 1u);
}
