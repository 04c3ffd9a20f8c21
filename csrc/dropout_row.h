// Dropout after relu or the identity, number by number: bulksample/backends/dropout.py is the same in numpy, and backends/base.py states the
// meaning. A product follows a sum, never a sum a product, so no device contracts them and all round alike.
#pragma once
#include "philox.h"

constexpr bs_u32 BS_DROPOUT_PARTS = 65536u;  // of the chance that a number is kept
constexpr bs_i64 BS_DROPOUT_LANES = 8;       // numbers that one block decides
constexpr bs_i64 BS_BIAS_ROWS = 256;         // rows of which the gradient of a bias is summed in float32

// The mask of some rows. Without vertices nothing is dropped.
struct BsMask {
  bs_u64 key;
  bs_u32 minibatch, kept;
  const bs_i32 *vertices, *trees;  // trees may be null: zeros
  BS_HD float scale() const { return (float)((double)BS_DROPOUT_PARTS / kept); }
};

// The words of numbers 8 i .. 8 i + 7 of a row.
BS_HD BsWords bs_dropout_words(const BsMask& mask, bs_i64 row, bs_i64 i) {
  const bs_u32 tree = mask.trees ? (bs_u32)mask.trees[row] : 0u;
  return bs_philox(BsWords{{(bs_u32)i, (bs_u32)mask.vertices[row], mask.minibatch, tree}}, (bs_u32)mask.key, (bs_u32)(mask.key >> 32));
}

// The 16 bits that decide number `lane` of 8.
BS_HD bs_u32 bs_dropout_half(const BsWords& words, int lane) { return words.v[lane / 2] >> (16 * (lane & 1)) & 0xFFFFu; }

// A comparison that is false of a NaN leaves it as it is.
BS_HD float bs_relu(float x) { return x <= 0.0f ? 0.0f : x; }
