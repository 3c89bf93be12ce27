// What a softmax divides by, with the polynomial of exponential.hpp and sums in fp64.
#pragma once

#include "exponential.hpp"

namespace twofold {
namespace {

// The sum of exp((x - peak) * sharpness) over at most kTotalPiece values: lane i mod 16 in ascending order, then Sum16's tree.
double softmax_total(const float* x, long n, float peak, float sharpness) {
  constexpr long kBlock = 64;
  double lanes[16] = {};
  for (long start = 0; start < n; start += kBlock) {
    const long size = n - start < kBlock ? n - start : kBlock, padded = (size + 15) / 16 * 16;
    float weights[kBlock] = {};
    for (long i = 0; i < size; ++i) weights[i] = exp_nonpositive((x[start + i] - peak) * sharpness);
    for (long i = 0; i < padded; i += 16) {
      for (int lane = 0; lane < 16; ++lane) lanes[lane] += static_cast<double>(weights[i + lane]);
    }
  }
  for (int width = 8; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

}  // namespace
}  // namespace twofold
