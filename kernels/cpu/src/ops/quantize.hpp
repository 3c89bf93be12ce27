// One row to int8 planes, and to both combined in 16 bits: t = 254 * q0 + q1.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "vectors.hpp"

namespace twofold {
namespace {

TWOFOLD_INLINE float clip127(float x) {
  x = x < -127.0f ? -127.0f : x;
  return x > 127.0f ? 127.0f : x;
}

TWOFOLD_INLINE F16v load_given(const float* x, long given) {
  return given >= 16 ? load16(x) : load_tail(x, given > 0 ? given : 0);
}

// What finite values are divided by: the largest becomes 127. `finite` is cleared where one is not.
TWOFOLD_INLINE float scale_of(const float* x, long n, bool& finite) {
  const Register most_finite = Register{} + 3.40282347e38f;
  F16v highest = zero16();
  RegisterInts within = ~RegisterInts{};
  for (long i = 0; i < n; i += 16) {
    const F16v v = load_given(x + i, n - i);
    for (int j = 0; j < kRegisters; ++j) {
      const Register a = v.part[j] < 0.0f ? -v.part[j] : v.part[j];
      within &= a <= most_finite;  // neither a NaN nor an infinity
      highest.part[j] = a > highest.part[j] ? a : highest.part[j];
    }
  }
  float lanes[16], most = 0.0f;
  store16(highest, lanes);
  for (float lane : lanes) most = lane > most ? lane : most;
  for (int j = 0; j < kRegisterLanes; ++j) finite = finite && within[j] != 0;
  const float scale = most / 127.0f;
  return scale == 0.0f ? 1.0f : scale;
}

TWOFOLD_INLINE std::int32_t combined_planes(float x, float scale) {
  const float t = x / scale, first = round_even(clip127(t));
  const float second = round_even(clip127((t - first) * 254.0f));
  return 254 * static_cast<std::int32_t>(first) + static_cast<std::int32_t>(second);
}

// To the nearest integers within +-127. Clipping before rounding gives what rounding before clipping does, as 127 is an
// integer.
TWOFOLD_INLINE F16v rounded127(const F16v& x) {
  const Register magic = Register{} + 12582912.0f;  // round_even's
  F16v v;
  for (int j = 0; j < kRegisters; ++j) {
    Register part = x.part[j] < -127.0f ? Register{} - 127.0f : x.part[j];
    part = part > 127.0f ? Register{} + 127.0f : part;
    v.part[j] = (part + magic) - magic;
  }
  return v;
}

// What a group's sixteen values become, where `second` is null for one plane: t in quads of the order 0, 2, 1, 3.
#if defined(__AVX2__)
struct Sums {
  __m256i lanes = _mm256_setzero_si256();
  TWOFOLD_MEMBER std::int32_t total() const {
    std::int32_t eight[8], sum = 0;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(eight), lanes);
    for (const std::int32_t one : eight) sum += one;
    return sum;
  }
};

// Sixteen integers within int16, in their order.
TWOFOLD_INLINE __m256i to_words(const F16v& x) {
  __m256 half[2];
  __builtin_memcpy(half, &x, sizeof half);
  const __m256i words = _mm256_packs_epi32(_mm256_cvttps_epi32(half[0]), _mm256_cvttps_epi32(half[1]));
  return _mm256_permute4x64_epi64(words, 0xD8);
}

TWOFOLD_INLINE void store_bytes(__m256i words, std::int8_t* out) {
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), bytes);
}

TWOFOLD_INLINE void store_sixteen(const F16v& q0, const F16v& q1, std::int16_t* t, std::int8_t* first, std::int8_t* second,
                                  Sums& sums) {
  __m256i words = to_words(q0);
  store_bytes(words, first);
  if (second != nullptr) {
    const __m256i low = to_words(q1);
    store_bytes(low, second);
    words = _mm256_add_epi16(_mm256_mullo_epi16(words, _mm256_set1_epi16(254)), low);
  }
  sums.lanes = _mm256_add_epi32(sums.lanes, _mm256_madd_epi16(words, _mm256_set1_epi16(1)));
  const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12,
                                         13, 10, 11, 14, 15);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(t), _mm256_shuffle_epi8(words, order));
}
#else
struct Sums {
  std::int32_t sum = 0;
  TWOFOLD_MEMBER std::int32_t total() const { return sum; }
};

TWOFOLD_INLINE void store_sixteen(const F16v& q0, const F16v& q1, std::int16_t* t, std::int8_t* first, std::int8_t* second,
                                  Sums& sums) {
  float high[16], low[16];
  store16(q0, high);
  store16(q1, low);
  for (int j = 0; j < 16; ++j) {
    int word = static_cast<int>(high[j]);
    first[j] = static_cast<std::int8_t>(word);
    if (second != nullptr) {
      second[j] = static_cast<std::int8_t>(low[j]);
      word = 254 * word + static_cast<int>(low[j]);
    }
    sums.sum += word;
    const int in_quad = j % 4;
    t[j - in_quad + (in_quad == 1 ? 2 : in_quad == 2 ? 1 : in_quad)] = static_cast<std::int16_t>(word);
  }
}
#endif

// One group of a row; returns the sum of t. Beyond `given` values, up to `count`, there are zeros.
TWOFOLD_INLINE std::int32_t quantize_group(const float* x, long given, long count, float scale, std::int16_t* t,
                                           std::int8_t* first, std::int8_t* second) {
  Sums sums;
  for (long i = 0; i < count; i += 16) {
    const F16v v = load_given(x + i, given - i) / scale, q0 = rounded127(v);
    F16v q1 = zero16();
    if (second != nullptr) {
      for (int j = 0; j < kRegisters; ++j) q1.part[j] = (v.part[j] - q0.part[j]) * 254.0f;
      q1 = rounded127(q1);
    }
    store_sixteen(q0, q1, t + i, first + i, second != nullptr ? second + i : nullptr, sums);
  }
  return sums.total();
}

void quantize(const float* x, long n, int planes, long rows, long group_size, std::int16_t* t, std::int8_t* q,
              std::int32_t* sums, float* unit) {
  bool finite = true;
  for (long start = 0, at = 0; start < n; start += group_size, at += rows) {
    unit[at] = scale_of(x + start, n - start < group_size ? n - start : group_size, finite);
  }
  const long padded = (n + 15) / 16 * 16;
  for (long start = 0; start < padded; start += group_size) {
    const long count = padded - start < group_size ? padded - start : group_size, given = finite ? n - start : 0;
    *sums = planes == 2 ? quantize_group(x + start, given, count, *unit, t, q, q + group_size)
                        : quantize_group(x + start, given, count, *unit, t, q, nullptr);
    *unit = !finite ? __builtin_nanf("") : planes == 2 ? *unit / 254.0f : *unit;
    t += rows * group_size, q += 2 * rows * group_size, sums += rows, unit += rows;
  }
}

}  // namespace
}  // namespace twofold
