// Ten rounds of Philox on many counters side by side. Two products a round are nearly all the work, and compilers spread 32-bit factors over
// 64-bit lanes and gather the halves again in every round. Here a word of a counter stays in a 64-bit lane throughout: products read only its
// lower half, so the upper half may hold anything. Several vectors run side by side, since a round waits for its products.
#pragma once
#include "native.h"

#if defined(BS_HAS_CLONES)
#include <immintrin.h>

#define BS_EACH _Pragma("GCC unroll 4") for (int w = 0; w < TOGETHER; ++w)

// c0 to c3 are arrays of TOGETHER vectors of the type Wide.
#define BS_PHILOX_ROUNDS(KEY, VECTOR, PRODUCT)                                                                                   \
  const VECTOR m0 = (VECTOR)(Wide{} + 0xD2511F53u), m1 = (VECTOR)(Wide{} + 0xCD9E8D57u);                                         \
  bs_u32 k0 = (bs_u32)(KEY), k1 = (bs_u32)((KEY) >> 32);                                                                         \
  _Pragma("GCC unroll 10") for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) BS_EACH {              \
    const Wide p0 = (Wide)PRODUCT((VECTOR)c0[w], m0), p1 = (Wide)PRODUCT((VECTOR)c2[w], m1);                                     \
    c0[w] = (p1 >> 32) ^ c1[w] ^ (bs_u64)k0, c1[w] = p1;                                                                         \
    c2[w] = (p0 >> 32) ^ c3[w] ^ (bs_u64)k1, c3[w] = p0;                                                                         \
  }

#endif
