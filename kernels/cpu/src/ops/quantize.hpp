// One row to int8 planes, and to both combined in 16 bits: t = 254 * q0 + q1.
#pragma once

#include "vectors.hpp"

namespace twofold {
namespace {

TWOFOLD_INLINE float clip127(float x) {
  x = x < -127.0f ? -127.0f : x;
  return x > 127.0f ? 127.0f : x;
}

TWOFOLD_INLINE bool all_finite(const float* x, long n) {
  std::int32_t bad[16] = {};
  for (long i = 0; i < n; i += 16) {
    float v[16] = {};
    __builtin_memcpy(v, x + i, static_cast<unsigned long>(n - i < 16 ? n - i : 16) * sizeof(float));
    for (int j = 0; j < 16; ++j) bad[j] |= !(__builtin_fabsf(v[j]) <= 3.40282347e38f);  // a NaN or an infinity
  }
  std::int32_t any_bad = 0;
  for (int j = 0; j < 16; ++j) any_bad |= bad[j];
  return any_bad == 0;
}

// What finite values are divided by: the largest becomes 127.
TWOFOLD_INLINE float scale_of(const float* x, long n) {
  float highest[16] = {};
  for (long i = 0; i < n; i += 16) {
    float v[16] = {};
    __builtin_memcpy(v, x + i, static_cast<unsigned long>(n - i < 16 ? n - i : 16) * sizeof(float));
    for (int j = 0; j < 16; ++j) {
      const float a = __builtin_fabsf(v[j]);
      highest[j] = a > highest[j] ? a : highest[j];
    }
  }
  float most = 0.0f;
  for (int j = 0; j < 16; ++j) most = highest[j] > most ? highest[j] : most;
  const float scale = most / 127.0f;
  return scale == 0.0f ? 1.0f : scale;
}

TWOFOLD_INLINE std::int32_t combined_planes(float x, float scale, bool two) {
  const float t = x / scale, first = round_even(clip127(t));
  if (!two) return static_cast<std::int32_t>(first);
  const float second = round_even(clip127((t - first) * 254.0f));
  return 254 * static_cast<std::int32_t>(first) + static_cast<std::int32_t>(second);
}

// Sixteen values to both planes. Clipping before rounding gives what rounding before clipping does, as 127 is an integer.
template <int Planes>
TWOFOLD_INLINE void to_planes(const float (&v)[16], float scale, std::int32_t (&q0)[16], std::int32_t (&q1)[16]) {
  for (int j = 0; j < 16; ++j) {
    const float t = v[j] / scale, first = round_even(clip127(t));
    q0[j] = static_cast<std::int32_t>(first);
    if (Planes == 2) q1[j] = static_cast<std::int32_t>(round_even(clip127((t - first) * 254.0f)));
  }
}

TWOFOLD_INLINE void store_bytes(const std::int32_t (&q)[16], std::int8_t* out) {
  std::int8_t bytes[16];
  for (int j = 0; j < 16; ++j) bytes[j] = static_cast<std::int8_t>(q[j]);
  __builtin_memcpy(out, bytes, sizeof bytes);
}

// In quads of the order 0, 2, 1, 3.
TWOFOLD_INLINE void store_words(const std::int32_t (&q)[16], std::int16_t* out) {
  std::int16_t words[16];
  for (int j = 0; j < 16; ++j) words[j] = static_cast<std::int16_t>(q[j]);
  std::uint64_t quads[4];
  __builtin_memcpy(quads, words, sizeof words);
  for (std::uint64_t& quad : quads) {
    quad = (quad & 0xFFFF00000000FFFFull) | (quad & 0xFFFF0000ull) << 16 | (quad >> 16 & 0xFFFF0000ull);
  }
  __builtin_memcpy(out, quads, sizeof quads);
}

// One group of a row; returns the sum of t. Beyond `given` values, up to `count`, there are zeros.
template <int Planes>
TWOFOLD_INLINE std::int32_t quantize_group(const float* x, long given, long count, float scale, std::int16_t* t,
                                           std::int8_t* first, std::int8_t* second) {
  std::int32_t lane_sums[16] = {};
  for (long i = 0; i < count; i += 16) {
    float v[16] = {};
    const long left = given - i < 16 ? given - i : 16;
    if (left > 0) __builtin_memcpy(v, x + i, static_cast<unsigned long>(left) * sizeof(float));
    std::int32_t q0[16], q1[16];
    to_planes<Planes>(v, scale, q0, q1);
    store_bytes(q0, first + i);
    if (Planes == 2) {
      store_bytes(q1, second + i);
      for (int j = 0; j < 16; ++j) q0[j] = 254 * q0[j] + q1[j];
    }
    store_words(q0, t + i);
    for (int j = 0; j < 16; ++j) lane_sums[j] += q0[j];
  }
  std::int32_t sum = 0;
  for (std::int32_t lane : lane_sums) sum += lane;
  return sum;
}

void quantize(const float* x, long n, int planes, long rows, long group_size, std::int16_t* t, std::int8_t* q,
              std::int32_t* sums, float* unit) {
  const bool finite = all_finite(x, n);
  const long padded = (n + 15) / 16 * 16;
  for (long start = 0; start < padded; start += group_size) {
    const long count = padded - start < group_size ? padded - start : group_size;
    const long given = !finite ? 0 : n - start < count ? n - start : count;
    const float scale = scale_of(x + start, given);
    *sums = planes == 2 ? quantize_group<2>(x + start, given, count, scale, t, q, q + group_size)
                        : quantize_group<1>(x + start, given, count, scale, t, q, nullptr);
    *unit = !finite ? __builtin_nanf("") : planes == 2 ? scale / 254.0f : scale;
    t += rows * group_size, q += 2 * rows * group_size, sums += rows, unit += rows;
  }
}

}  // namespace
}  // namespace twofold
