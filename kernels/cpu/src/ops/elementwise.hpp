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

// The lowest id of the largest value, -1 where one is not finite. Each lane keeps its largest value and where that stood first.
long argmax(const float* x, long n) {
  Register highest[kRegisters];
  RegisterInts place[kRegisters], at[kRegisters], unbounded[kRegisters] = {};
  for (int r = 0; r < kRegisters; ++r) {
    for (int lane = 0; lane < kRegisterLanes; ++lane) {
      at[r][lane] = r * kRegisterLanes + lane;
      highest[r][lane] = x[0];
      place[r][lane] = 0;
    }
  }
  const long whole = n / 16 * 16;
  for (long i = 0; i < whole; i += 16) {
    const F16v value = load16(x + i);
    for (int r = 0; r < kRegisters; ++r) {
      const RegisterInts above = value.part[r] > highest[r];
      highest[r] = above ? value.part[r] : highest[r];
      place[r] = above ? at[r] : place[r];
      const Register nothing = value.part[r] - value.part[r];  // NaN of infinities too
      unbounded[r] |= nothing != nothing;
      at[r] += 16;
    }
  }
  bool bad = false;
  float best = x[0];
  std::int32_t where = 0;
  for (int r = 0; r < kRegisters; ++r) {
    for (int lane = 0; lane < kRegisterLanes; ++lane) {
      const float value = highest[r][lane];
      bad |= unbounded[r][lane] != 0;
      if (value > best || (value == best && place[r][lane] < where)) best = value, where = place[r][lane];
    }
  }
  for (long i = whole; i < n; ++i) {
    bad |= x[i] - x[i] != 0.0f;
    if (x[i] > best) best = x[i], where = static_cast<std::int32_t>(i);
  }
  return bad ? -1 : where;
}

}  // namespace
}  // namespace twofold
