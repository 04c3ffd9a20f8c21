// The integer types and marks that let one header serve g++, nvcc and NVRTC.
// No standard header is included under NVRTC: it has none.
#pragma once
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define BS_HD __host__ __device__ __forceinline__
#define BS_INLINE __forceinline__
#define BS_HD_INLINE BS_HD
#else
#define BS_HD inline
#if defined(__GNUC__)
#define BS_INLINE inline __attribute__((always_inline))  // where the compiler might call: what a loop over rows or edges consists of
#else
#define BS_INLINE inline
#endif
#define BS_HD_INLINE BS_INLINE
#endif
#if defined(__CUDA_ARCH__) || defined(__CUDACC_RTC__)
#define BS_TABLE static __device__ const
#else
#define BS_TABLE static const
#endif

#if defined(__CUDACC_RTC__) || defined(__CUDACC__)  // what the atomics of CUDA take
using bs_u32 = unsigned int;
using bs_u64 = unsigned long long;
using bs_i32 = int;
using bs_i64 = long long;
#else
#include <cstdint>
using bs_u32 = std::uint32_t;
using bs_u64 = std::uint64_t;
using bs_i32 = std::int32_t;
using bs_i64 = std::int64_t;
#endif
static_assert(sizeof(bs_u32) == 4 && sizeof(bs_u64) == 8, "fixed-width types");

// The upper half of a 128-bit product.
BS_HD bs_u64 bs_mulhi(bs_u64 a, bs_u64 b) {
#if defined(__CUDA_ARCH__)
  return __umul64hi(a, b);
#else
  return (bs_u64)(((unsigned __int128)a * b) >> 64);
#endif
}

BS_HD int bs_leading_zeros(bs_u64 a) {
#if defined(__CUDA_ARCH__)
  return __clzll((long long)a);
#else
  return __builtin_clzll(a);
#endif
}
