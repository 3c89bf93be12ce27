// exp for x <= 0; the polynomial of kernels/naive/exponential.py.
#pragma once

#include "vectors.hpp"

namespace twofold {
namespace {

TWOFOLD_INLINE float exp_nonpositive(float x) {
  x = x < -87.33654f ? -87.33654f : x;  // NaN stays
  float k = round_even(x * 1.44269504f);
  k = k == k ? k : 0.0f;
  const float r = (x - k * 0.693359375f) - k * -2.12194440e-4f;
  float p = 0.00138436072f;
  p = p * r + 0.00837419555f;
  p = p * r + 0.0416680053f;
  p = p * r + 0.166664302f;
  p = p * r + 0.49999994f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const std::int32_t bits = (static_cast<std::int32_t>(k) + 127) << 23;
  float power;
  __builtin_memcpy(&power, &bits, 4);
  return p * power;
}

}  // namespace
}  // namespace twofold
