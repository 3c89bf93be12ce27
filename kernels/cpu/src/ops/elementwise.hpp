// Operations without a reduction: add, SiLU and GELU times a factor, RoPE, embedding rows, rounding to fp16, argmax.
#pragma once

#include "exponential.hpp"
#include "half.hpp"

namespace twofold {
namespace {

void add(const float* x, const float* y, long n, float* out) {
  for (long i = 0; i < n; ++i) out[i] = x[i] + y[i];
}

void silu_mul(const float* gate, const float* up, long n, float* out) {
  for (long i = 0; i < n; ++i) {
    const float x = gate[i];
    const float e = exp_nonpositive(-__builtin_fabsf(x));
    const float numerator = x >= 0.0f ? x : x * e;
    out[i] = (numerator / (1.0f + e)) * up[i];
  }
}

// The tanh form as x * sigmoid(u); see kernels/naive/gelu.py.
void gelu_mul(const float* gate, const float* up, long n, float* out) {
  for (long i = 0; i < n; ++i) {
    const float x = gate[i];
    const float u = x * (1.5957691216f + 0.0713548163f * (x * x));
    const float e = exp_nonpositive(-__builtin_fabsf(u));
    const float numerator = u >= 0.0f ? x : x * e;
    out[i] = (numerator / (1.0f + e)) * up[i];
  }
}

void rope(const float* x, const float* cos, const float* sin, long heads, long dim, long half, float* out) {
  for (long head = 0; head < heads; ++head, x += dim, out += dim) {
    for (long i = 0; i < half; ++i) {
      const float x1 = x[i], x2 = x[half + i];
      out[i] = x1 * cos[i] - x2 * sin[i];
      out[half + i] = x2 * cos[i] + x1 * sin[i];
    }
    for (long i = 2 * half; i < dim; ++i) out[i] = x[i];
  }
}

void embed(const std::uint16_t* row, long n, float* out) {
  long i = 0;
  for (; i + 16 <= n; i += 16) store16(load_half16(row + i), out + i);
  for (; i < n; ++i) out[i] = half_to_float(row[i]);
}

// The largest value by lanes first, then where it stands: the first place that equals it is the lowest id.
long argmax(const float* x, long n) {
  float highest[16];
  int unordered[16] = {};
  for (int lane = 0; lane < 16; ++lane) highest[lane] = x[0];
  const long whole = n / 16 * 16;
  for (long i = 0; i < whole; i += 16) {
    for (int lane = 0; lane < 16; ++lane) {
      const float value = x[i + lane];
      unordered[lane] |= value != value;
      highest[lane] = value > highest[lane] ? value : highest[lane];
    }
  }
  int bad = 0;
  float best = highest[0];
  for (int lane = 0; lane < 16; ++lane) {
    bad |= unordered[lane];
    best = highest[lane] > best ? highest[lane] : best;
  }
  for (long i = whole; i < n; ++i) {
    bad |= x[i] != x[i];
    best = x[i] > best ? x[i] : best;
  }
  if (bad) return -1;
  for (long i = 0; i < whole; i += 16) {
    int found = 0;
    for (int lane = 0; lane < 16; ++lane) found |= x[i + lane] == best;
    for (int lane = 0; found; ++lane) {
      if (x[i + lane] == best) return i + lane;
    }
  }
  for (long i = whole;; ++i) {
    if (x[i] == best) return i;
  }
}

}  // namespace
}  // namespace twofold
