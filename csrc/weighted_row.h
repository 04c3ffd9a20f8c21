// Independent draws from one row by weight: which words decide draw t, and which position it picks.
#pragma once
#include "philox.h"

// The sum of d weights; null stands for ones. Weights are fixed point whose row sums stay below 2^62.
BS_HD bs_u64 bs_weight(const bs_i64* weights, bs_u32 d) {
  if (!weights) return d;
  bs_u64 total = 0;
  for (bs_u32 i = 0; i < d; ++i) total += (bs_u64)weights[i];
  return total;
}

// The target of draw t, floor(u W / 2^64): u joins words 2 (t mod 2) and 2 (t mod 2) + 1 of block t div 2.
BS_HD bs_u64 bs_target(const BsStream& stream, bs_u32 t, bs_u64 total) {
  const BsWords words = bs_block(stream, t >> 1);
  const bs_u32 first = (t & 1u) * 2;
  return bs_mulhi((bs_u64)words.v[first + 1] << 32 | words.v[first], total);
}

// The first position whose running sum exceeds the target; `at` and `sum` (of the weights before it) go on from a smaller target.
BS_HD bs_u32 bs_reach(const bs_i64* weights, bs_u64 target, bs_u32 at, bs_u64& sum) {
  for (;; ++at) {
    const bs_u64 next = sum + (weights ? (bs_u64)weights[at] : 1u);
    if (target < next) return at;
    sum = next;
  }
}
