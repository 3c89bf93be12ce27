// The rotation H (x) Q of one row and its inverse.
#pragma once

#include "hadamard.hpp"

namespace twofold {
namespace {

constexpr int kMixRows = 3;  // the best of 2 to 5, with AVX2 and without

// Sixteen lanes of `Rows` rows of outputs: each input is loaded once for all.
template <int Rows>
TWOFOLD_INLINE void mix_rows(const float* in, const float* mix, long m, long row_step, long column_step, long width,
                             float* out) {
  F16v sums[Rows] = {};
  for (long c = 0; c < m; ++c) {
    const F16v x = load16(in + c * width);
#pragma GCC unroll 3
    for (int d = 0; d < Rows; ++d) add_to(sums[d], mix[d * row_step + c * column_step] * x);
  }
#pragma GCC unroll 3
  for (int d = 0; d < Rows; ++d) store16(sums[d], out + d * width);
}

// out[d] = sum over c of mix[d * row_step + c * column_step] * in[c], from +0, c ascending, blocks of `width`.
void mix_blocks(const float* in, const float* mix, long m, long row_step, long column_step, long width, float* out) {
  long i = 0;
  for (; i + 16 <= width; i += 16) {
    const float* row = mix;
    float* target = out + i;
    long left = m;
    for (; left >= kMixRows; left -= kMixRows, row += kMixRows * row_step, target += kMixRows * width) {
      mix_rows<kMixRows>(in + i, row, m, row_step, column_step, width, target);
    }
    if (left == 2) mix_rows<2>(in + i, row, m, row_step, column_step, width, target);
    if (left == 1) mix_rows<1>(in + i, row, m, row_step, column_step, width, target);
  }
  if (i == width) return;
  for (long d = 0; d < m; ++d) {
    for (i = 0; i < width; ++i) {
      float sum = 0.0f;
      for (long c = 0; c < m; ++c) sum += mix[d * row_step + c * column_step] * in[c * width + i];
      out[d * width + i] = sum;
    }
  }
}

void rotate(const float* x, const std::int8_t* signs, const float* mix, long dim, float* t, float* scratch) {
  const long width = dim & -dim, m = dim / width;
  float* rotated = mix != nullptr ? scratch : t;
  hadamard(SignedFrom{x, signs}, ScaledTo{rotated, hadamard_factor(width)}, dim, width);
  if (mix != nullptr) mix_blocks(rotated, mix, m, m, 1, width, t);
}

void unrotate(const float* y, const std::int8_t* signs, const float* mix, long dim, float* out, float* scratch) {
  const long width = dim & -dim, m = dim / width;
  if (mix != nullptr) mix_blocks(y, mix, m, 1, m, width, scratch);
  hadamard(PlainFrom{mix != nullptr ? scratch : y}, SignedTo{out, hadamard_factor(width), signs}, dim, width);
}

}  // namespace
}  // namespace twofold
