// The rotation H (x) Q of one row and its inverse.
#pragma once

#include "vectors.hpp"

namespace twofold {
namespace {

#if defined(__clang__)
#define TWOFOLD_SHUFFLE8(v, ...) __builtin_shufflevector(v, v, __VA_ARGS__)
#else
typedef std::int32_t I8v __attribute__((vector_size(32)));
#define TWOFOLD_SHUFFLE8(v, ...) __builtin_shuffle(v, I8v{__VA_ARGS__})
#endif

// Strides 1, 2 and 4 inside eight lanes. A pair (a, b) becomes (b + a, a + -b), which is (a + b, a - b) to the bit.
TWOFOLD_INLINE void butterflies8(float* t) {
  const F8 sign1 = {1, -1, 1, -1, 1, -1, 1, -1}, sign2 = {1, 1, -1, -1, 1, 1, -1, -1}, sign4 = {1, 1, 1, 1, -1, -1, -1, -1};
  F8 v;
  __builtin_memcpy(&v, t, sizeof v);
  v = TWOFOLD_SHUFFLE8(v, 1, 0, 3, 2, 5, 4, 7, 6) + v * sign1;
  v = TWOFOLD_SHUFFLE8(v, 2, 3, 0, 1, 6, 7, 4, 5) + v * sign2;
  v = TWOFOLD_SHUFFLE8(v, 4, 5, 6, 7, 0, 1, 2, 3) + v * sign4;
  __builtin_memcpy(t, &v, sizeof v);
}

TWOFOLD_INLINE void butterflies_stride(float* t, long dim, long stride) {
  for (long start = 0; start < dim; start += 2 * stride) {
    float *a = t + start, *b = a + stride;
    for (long i = 0; i < stride; ++i) {
      const float x = a[i], y = b[i];
      a[i] = x + y;
      b[i] = x - y;
    }
  }
}

void hadamard_blocks(float* t, long dim, long width) {
  long stride = 1;
  if (width >= 8) {
    for (long i = 0; i < dim; i += 8) butterflies8(t + i);
    stride = 8;
  }
  for (; stride < width; stride *= 2) butterflies_stride(t, dim, stride);
  const float factor = static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(width)));
  for (long i = 0; i < dim; ++i) t[i] *= factor;
}

// out[d] = sum over c of mix[d * row_step + c * column_step] * in[c], from +0, c ascending, blocks of `width`.
void mix_blocks(const float* in, const float* mix, long m, long row_step, long column_step, long width, float* out) {
  for (long d = 0; d < m; ++d) {
    float* target = out + d * width;
    long i = 0;
    for (; i + 16 <= width; i += 16) {
      F16v sum = zero16();
      for (long c = 0; c < m; ++c) add_to(sum, mix[d * row_step + c * column_step] * load16(in + c * width + i));
      store16(sum, target + i);
    }
    for (; i < width; ++i) {
      float sum = 0.0f;
      for (long c = 0; c < m; ++c) sum += mix[d * row_step + c * column_step] * in[c * width + i];
      target[i] = sum;
    }
  }
}

void rotate(const float* x, const std::int8_t* signs, const float* mix, long dim, float* t, float* scratch) {
  const long width = dim & -dim, m = dim / width;
  float* work = mix != nullptr ? scratch : t;
  for (long i = 0; i < dim; ++i) work[i] = x[i] * static_cast<float>(signs[i]);
  hadamard_blocks(work, dim, width);
  if (mix != nullptr) mix_blocks(work, mix, m, m, 1, width, t);
}

void unrotate(const float* y, const std::int8_t* signs, const float* mix, long dim, float* out, float* scratch) {
  const long width = dim & -dim, m = dim / width;
  if (mix != nullptr) {
    mix_blocks(y, mix, m, 1, m, width, scratch);
  } else {
    __builtin_memcpy(scratch, y, static_cast<unsigned long>(dim) * sizeof(float));
  }
  hadamard_blocks(scratch, dim, width);
  for (long i = 0; i < dim; ++i) out[i] = scratch[i] * static_cast<float>(signs[i]);
}

}  // namespace
}  // namespace twofold
