// One row to int8 planes, combined in int16: t = 254 * q0 + q1 carries both planes through one multiplication exactly.
#pragma once

#include "vectors.hpp"

namespace twofold {
namespace {

TWOFOLD_INLINE float clip127(float x) {
  x = x < -127.0f ? -127.0f : x;
  return x > 127.0f ? 127.0f : x;
}

// Clipping before rounding gives what rounding before clipping does, as 127 is an integer.
TWOFOLD_INLINE std::int32_t combined_planes(float x, float scale, bool two) {
  const float t = x / scale;
  const float q0 = round_even(clip127(t));
  if (!two) return static_cast<std::int32_t>(q0);
  const float q1 = round_even(clip127((t - q0) * 254.0f));
  return 254 * static_cast<std::int32_t>(q0) + static_cast<std::int32_t>(q1);
}

void quantize(const float* x, long n, int planes, long rows, long group_size, std::int16_t* t, std::int32_t* sums,
              float* unit) {
  float highest = 0.0f;
  int finite = 1;
  for (long i = 0; i < n; ++i) {
    const float a = __builtin_fabsf(x[i]);
    finite &= a <= 3.40282347e38f;  // false for NaN
    highest = a > highest ? a : highest;
  }
  float scale = highest / 127.0f;
  if (scale == 0.0f) scale = 1.0f;
  const bool two = planes == 2;
  const long padded = (n + 15) / 16 * 16;
  for (long start = 0; start < padded; start += group_size, t += rows * group_size, sums += rows) {
    const long count = padded - start < group_size ? padded - start : group_size;
    std::int32_t sum = 0;
    for (long i = 0; i < count; i += 16) {
      float v[16] = {};
      const long left = n - start - i < 16 ? n - start - i : 16;
      if (finite) __builtin_memcpy(v, x + start + i, static_cast<unsigned long>(left) * sizeof(float));
      std::int32_t q[16];
      for (int j = 0; j < 16; ++j) q[j] = combined_planes(v[j], scale, two);
      for (int j = 0; j < 16; ++j) sum += q[j];
      for (int j = 0; j < 16; j += 4) {
        t[i + j] = static_cast<std::int16_t>(q[j]);
        t[i + j + 1] = static_cast<std::int16_t>(q[j + 2]);
        t[i + j + 2] = static_cast<std::int16_t>(q[j + 1]);
        t[i + j + 3] = static_cast<std::int16_t>(q[j + 3]);
      }
    }
    *sums = sum;
  }
  if (!finite) scale = __builtin_nanf("");
  *unit = two ? scale / 254.0f : scale;
}

}  // namespace
}  // namespace twofold
