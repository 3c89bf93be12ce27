// Sixteen fp32 lanes for every tier, by the compiler's vector extension: one register, or two or four.
// All of ops/ has internal linkage and uses no library templates: code compiled for a tier must not leak into others.
#pragma once

#include <cstdint>

namespace twofold {
namespace {

#if defined(__AVX512F__)
constexpr int kRegisterLanes = 16;
#elif defined(__AVX2__)
constexpr int kRegisterLanes = 8;
#else
constexpr int kRegisterLanes = 4;
#endif
constexpr int kRegisters = 16 / kRegisterLanes;

typedef float F4 __attribute__((vector_size(16)));
typedef float F8 __attribute__((vector_size(32)));
typedef float Register __attribute__((vector_size(4 * kRegisterLanes)));
typedef std::int32_t RegisterInts __attribute__((vector_size(4 * kRegisterLanes)));

#define TWOFOLD_INLINE static inline __attribute__((always_inline))
#define TWOFOLD_MEMBER __attribute__((always_inline)) inline

// Vectors wider than the tier's registers are kept as several of them: the compiler spills those it has to split itself.
struct F16v {
  Register part[kRegisters];
};

TWOFOLD_INLINE F16v zero16() { return F16v{}; }
TWOFOLD_INLINE F16v load16(const float* p) {
  F16v v;
  for (int i = 0; i < kRegisters; ++i) __builtin_memcpy(&v.part[i], p + i * kRegisterLanes, sizeof(Register));
  return v;
}
TWOFOLD_INLINE void store16(const F16v& v, float* p) {
  for (int i = 0; i < kRegisters; ++i) __builtin_memcpy(p + i * kRegisterLanes, &v.part[i], sizeof(Register));
}
// The first n < 16 lanes, zeros behind them.
TWOFOLD_INLINE F16v load_tail(const float* p, long n) {
  float padded[16] = {};
  __builtin_memcpy(padded, p, static_cast<unsigned long>(n) * sizeof(float));
  return load16(padded);
}

TWOFOLD_INLINE F16v operator+(const F16v& a, const F16v& b) {
  F16v v;
  for (int i = 0; i < kRegisters; ++i) v.part[i] = a.part[i] + b.part[i];
  return v;
}
TWOFOLD_INLINE F16v operator*(const F16v& a, const F16v& b) {
  F16v v;
  for (int i = 0; i < kRegisters; ++i) v.part[i] = a.part[i] * b.part[i];
  return v;
}
TWOFOLD_INLINE F16v operator*(float a, const F16v& b) {
  F16v v;
  for (int i = 0; i < kRegisters; ++i) v.part[i] = a * b.part[i];
  return v;
}
TWOFOLD_INLINE F16v operator/(const F16v& a, float b) {
  F16v v;
  for (int i = 0; i < kRegisters; ++i) v.part[i] = a.part[i] / b;
  return v;
}
TWOFOLD_INLINE void add_to(F16v& sum, const F16v& x) { sum = sum + x; }

// The fixed tree of Sum16.
TWOFOLD_INLINE float sum_lanes(const F16v& v) {
#if defined(__AVX512F__)
  F8 half[2];
  __builtin_memcpy(half, &v, sizeof v);
  const F8 eight = half[0] + half[1];
#elif defined(__AVX2__)
  const F8 eight = v.part[0] + v.part[1];
#endif
#if defined(__AVX2__)
  F4 quarter[2];
  __builtin_memcpy(quarter, &eight, sizeof eight);
  const F4 four = quarter[0] + quarter[1];
#else
  const F4 four = (v.part[0] + v.part[2]) + (v.part[1] + v.part[3]);
#endif
  return (four[0] + four[2]) + (four[1] + four[3]);
}

constexpr float kRoundingShift = 12582912.0f;  // 1.5 * 2^23: what is added to it is rounded to an integer, ties to even

// Rounds |x| < 2^22 to the nearest integer, ties to even, without a library call.
TWOFOLD_INLINE float round_even(float x) { return (x + kRoundingShift) - kRoundingShift; }

}  // namespace
}  // namespace twofold
