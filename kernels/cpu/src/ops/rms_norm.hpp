#pragma once

#include "vectors.hpp"

namespace twofold {
namespace {

void rms_norm(const float* x, const float* weight, float eps, long n, float* out) {
  F16v lanes = zero16();
  const long whole = n / 16 * 16;
  for (long i = 0; i < whole; i += 16) {
    const F16v v = load16(x + i);
    add_to(lanes, v * v);
  }
  if (whole < n) {
    const F16v v = load_tail(x + whole, n - whole);
    add_to(lanes, v * v);
  }
  const float r = 1.0f / __builtin_sqrtf(sum_lanes(lanes) / static_cast<float>(n) + eps);
  for (long i = 0; i < n; ++i) out[i] = (x[i] * r) * weight[i];
}

}  // namespace
}  // namespace twofold
