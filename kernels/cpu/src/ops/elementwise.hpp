// Operations without a reduction: add, SiLU times a factor, RoPE, embedding rows, argmax.
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

long argmax(const float* x, long n) {
  int unordered = 0;
  for (long i = 0; i < n; ++i) unordered |= x[i] != x[i];
  if (unordered) return -1;
  long best = 0;
  for (long i = 1; i < n; ++i) {
    if (x[i] > x[best]) best = i;
  }
  return best;
}

}  // namespace
}  // namespace twofold
