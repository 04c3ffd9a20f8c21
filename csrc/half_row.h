// float32 to half widths and back, by integers: the same bits on every device. Rounded to nearest, ties to even; what is no number
// stays none.
#pragma once
#include "quantise_row.h"

// IEEE binary16: 5 bits of exponent, 10 of fraction.
BS_HD bs_u32 bs_to_fp16(float x) {
  const bs_u32 bits = bs_float_bits(x), sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
  if (size > 0x7F800000u) return sign | 0x7E00u;
  if (size >= 0x477FF000u) return sign | 0x7C00u;                                                    // 65520 and above: infinity
  if (size >= 0x38800000u) return sign | ((size - 0x38000000u + 0xFFFu + (size >> 13 & 1u)) >> 13);  // normal
  if (size < 0x33000000u) return sign;                                                               // below half of 2^-24
  const bs_u32 fraction = (size & 0x7FFFFFu) | 0x800000u, shift = 126u - (size >> 23);
  const bs_u32 whole = fraction >> shift, rest = fraction & ((1u << shift) - 1u), tie = 1u << (shift - 1u);
  return sign | (whole + (bs_u32)(rest > tie || (rest == tie && (whole & 1u))));
}

BS_HD float bs_from_fp16(bs_u32 half) {
  const bs_u32 sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31u, fraction = half & 0x3FFu;
  if (exponent == 31u) return bs_bits_float(sign | 0x7F800000u | fraction << 13);
  if (exponent) return bs_bits_float(sign | (exponent + 112u) << 23 | fraction << 13);
  const float size = (float)(bs_i32)fraction * 0x1p-24f;
  return sign ? -size : size;
}

// bfloat16: the upper half of a float32.
BS_HD bs_u32 bs_to_bf16(float x) {
  const bs_u32 bits = bs_float_bits(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return bits >> 16 | 0x40u;
  return (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
}

BS_HD float bs_from_bf16(bs_u32 half) { return bs_bits_float(half << 16); }
