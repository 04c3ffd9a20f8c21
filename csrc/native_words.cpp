// Computes the first two words of many blocks, for keys.
#include "native_lanes.h"
#include "native_race.h"

#if defined(BS_HAS_CLONES)

#define BS_WORDS(LEVEL, LANES, VECTORS, VECTOR, PRODUCT)                                                                        \
  __attribute__((target(LEVEL))) void words_of(BsStream stream, const bs_i32* columns, int count, bs_u32* low, bs_u32* high) {  \
    constexpr int TOGETHER = VECTORS;                                                                                           \
    typedef bs_u64 Wide __attribute__((vector_size(8 * LANES)));                                                                \
    typedef bs_u32 Narrow __attribute__((vector_size(4 * LANES)));                                                              \
    for (int i = 0; i < count; i += LANES * TOGETHER) {                                                                         \
      Wide c0[TOGETHER], c1[TOGETHER], c2[TOGETHER], c3[TOGETHER];                                                              \
      Narrow half;                                                                                                              \
      BS_EACH {                                                                                                                 \
        __builtin_memcpy(&half, columns + i + w * LANES, sizeof half);                                                          \
        c0[w] = __builtin_convertvector(half, Wide), c1[w] = Wide{} + stream.vertex;                                            \
        c2[w] = Wide{} + stream.minibatch, c3[w] = Wide{} + stream.tag;                                                         \
      }                                                                                                                         \
      BS_PHILOX_ROUNDS(stream.seed, VECTOR, PRODUCT)                                                                            \
      BS_EACH {                                                                                                                 \
        half = __builtin_convertvector(c0[w], Narrow);                                                                          \
        __builtin_memcpy(low + i + w * LANES, &half, sizeof half);                                                              \
        half = __builtin_convertvector(c1[w], Narrow);                                                                          \
        __builtin_memcpy(high + i + w * LANES, &half, sizeof half);                                                             \
      }                                                                                                                         \
    }                                                                                                                           \
  }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // the operand of _mm512_mul_epu32 whose mask leaves it out
BS_WORDS("arch=x86-64-v4", 8, 2, __m512i, _mm512_mul_epu32)
#pragma GCC diagnostic pop
BS_WORDS("arch=x86-64-v3", 4, 4, __m256i, _mm256_mul_epu32)
BS_WORDS("default", 2, 2, __m128i, _mm_mul_epu32)

void two_words(const BsStream& stream, const bs_i32* columns, int count, bs_u32* low, bs_u32* high) {
  words_of(stream, columns, count, low, high);  // calls the clone of this machine; other files see the default one only
}

#else

void two_words(const BsStream& stream, const bs_i32* columns, int count, bs_u32* low, bs_u32* high) {
  for (int i = 0; i < count; ++i) {
    const BsWords words = bs_block(stream, (bs_u32)columns[i]);
    low[i] = words.v[0];
    high[i] = words.v[1];
  }
}

#endif
