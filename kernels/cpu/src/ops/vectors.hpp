// Sixteen fp32 lanes for every tier, by the compiler's vector extension: one register, two or four of them.
// All of ops/ has internal linkage and uses no library templates: code compiled for a tier must not leak into others.
#pragma once

#include <cstdint>

namespace twofold {
namespace {

typedef float F4 __attribute__((vector_size(16)));
typedef float F8 __attribute__((vector_size(32)));
typedef float F16v __attribute__((vector_size(64)));
typedef std::int32_t I16v __attribute__((vector_size(64)));

#define TWOFOLD_INLINE static inline __attribute__((always_inline))

TWOFOLD_INLINE void load16(const float* p, F16v& v) { __builtin_memcpy(&v, p, sizeof v); }
TWOFOLD_INLINE void store16(const F16v& v, float* p) { __builtin_memcpy(p, &v, sizeof v); }

// The first n < 16 lanes, zeros behind them.
TWOFOLD_INLINE void load_tail(const float* p, long n, F16v& v) {
  v = F16v{};
  __builtin_memcpy(&v, p, static_cast<unsigned long>(n) * sizeof(float));
}

// The fixed tree of Sum16.
TWOFOLD_INLINE float sum_lanes(const F16v& v) {
  F8 half[2];
  __builtin_memcpy(half, &v, sizeof v);
  const F8 eight = half[0] + half[1];
  F4 quarter[2];
  __builtin_memcpy(quarter, &eight, sizeof eight);
  const F4 four = quarter[0] + quarter[1];
  return (four[0] + four[2]) + (four[1] + four[3]);
}

// Rounds |x| < 2^22 to the nearest integer, ties to even, without a library call.
TWOFOLD_INLINE float round_even(float x) {
  const float magic = 12582912.0f;  // 1.5 * 2^23
  return (x + magic) - magic;
}

}  // namespace
}  // namespace twofold
