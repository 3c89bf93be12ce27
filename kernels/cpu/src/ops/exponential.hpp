// exp for x <= 0; the polynomial of kernels/naive/exponential.py.
#pragma once

#include "vectors.hpp"

namespace twofold {
namespace {

TWOFOLD_INLINE float exp_nonpositive(float x) {
  x = x < -87.33654f ? -87.33654f : x;  // NaN stays
  // k = rne(x * log2 e), as a float and in the low bits of `shifted`: without a choice or a conversion, for either of which GCC
  // computes the polynomial twice. A NaN's power is anything, its polynomial NaN.
  const float shifted = x * 1.44269504f + kRoundingShift;
  const float k = shifted - kRoundingShift;
  const float r = (x - k * 0.693359375f) - k * -2.12194440e-4f;
  float p = 0.00138436072f;
  p = p * r + 0.00837419555f;
  p = p * r + 0.0416680053f;
  p = p * r + 0.166664302f;
  p = p * r + 0.49999994f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  std::uint32_t bits;
  __builtin_memcpy(&bits, &shifted, 4);
  bits = (bits + 127u) << 23;  // what stands above k is shifted out
  float power;
  __builtin_memcpy(&power, &bits, 4);
  return p * power;
}

}  // namespace
}  // namespace twofold
