// Rounding the columns of one block with error feedback, a strip of rows at a time: every row is on its own.
//
// A column gathers the errors of the columns before it while it sits in registers, rather than each error being scattered
// over the columns behind it. The additions and their order are the same; the stores are saved.
#pragma once

#include "vectors.hpp"

namespace twofold {
namespace {

#if defined(__AVX2__)
constexpr int kStripVectors = 4;
#else
constexpr int kStripVectors = 2;  // 8 of the 16 registers of four lanes
#endif
constexpr int kStrip = 16 * kStripVectors;
static_assert(kStrip <= kMaxRoundedStrip, "the caller's scratch holds a strip");

TWOFOLD_INLINE float clip(float x, float highest) {
  x = x < -highest ? -highest : x;
  return x > highest ? highest : x;
}

// The integer levels of `kStrip` targets, as floats. A NaN counts as zero.
TWOFOLD_INLINE void nearest_levels(const RoundColumnsArgs& args, const float* target, const float* inverse, float* level) {
  const float highest = args.highest, inner = args.inner, threshold = (inner + highest) / 2.0f;
  if (args.four_levels) {
    for (int i = 0; i < kStrip; ++i) {
      const float product = target[i] * inverse[i];
      const float size = product == product ? product : 0.0f;
      level[i] = __builtin_copysignf(__builtin_fabsf(size) > threshold ? highest : inner, size);
    }
  } else {
    for (int i = 0; i < kStrip; ++i) {
      const float product = target[i] * inverse[i];
      level[i] = round_even(clip(product == product ? product : 0.0f, highest));
    }
  }
}

void round_strip(const RoundColumnsArgs& args, long row, long n, float* errors) {
  const unsigned long bytes = static_cast<unsigned long>(n) * sizeof(float);
  float scale[kStrip] = {}, inverse[kStrip], target[kStrip] = {}, weight[kStrip] = {}, level[kStrip];
  __builtin_memcpy(scale, args.scale + row, bytes);
  for (int i = 0; i < kStrip; ++i) inverse[i] = scale[i] > 0.0f ? 1.0f / scale[i] : 0.0f;
  for (long column = 0; column < args.columns; ++column) {
    const long at = column * args.rows + row;
    __builtin_memcpy(target, args.target + at, bytes);
    __builtin_memcpy(weight, args.weights + at, bytes);
    F16v sum[kStripVectors];
    for (int v = 0; v < kStripVectors; ++v) sum[v] = load16(target + 16 * v);
    const float* feedback = args.feedback + column * args.columns;
    for (long before = 0; before < column; ++before) {
      const float* error = errors + before * kStrip;
      for (int v = 0; v < kStripVectors; ++v) add_to(sum[v], feedback[before] * load16(error + 16 * v));
    }
    for (int v = 0; v < kStripVectors; ++v) store16(sum[v], target + 16 * v);
    nearest_levels(args, target, inverse, level);
    float* error = errors + column * kStrip;
    for (int i = 0; i < kStrip; ++i) error[i] = weight[i] - level[i] * scale[i];
    std::int8_t narrow[kStrip];
    for (int i = 0; i < kStrip; ++i) narrow[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(level[i]));
    __builtin_memcpy(args.weights + at, error, bytes);
    __builtin_memcpy(args.levels + at, narrow, static_cast<unsigned long>(n));
  }
}

void round_columns(const RoundColumnsArgs& args, long row_begin, long row_end, float* scratch) {
  for (long row = row_begin; row < row_end; row += kStrip) {
    round_strip(args, row, row_end - row < kStrip ? row_end - row : kStrip, scratch);
  }
}

}  // namespace
}  // namespace twofold
