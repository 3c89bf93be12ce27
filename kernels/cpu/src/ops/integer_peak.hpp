// The multiply-adds of this tier's product with nothing in their way: operands in registers, sums that do not wait for each
// other. Held operands keep the compiler from computing a product once and from folding the loop.
#pragma once

#include "../kernels.hpp"

#if defined(__AVX2__)
#include "integers.hpp"
#else
#include "vectors.hpp"
#endif

namespace twofold {
namespace {

constexpr int kAnyProduct = 1 << 16;

#if defined(__AVX2__)
constexpr int kPeakSums = kWidth == 64 ? 16 : 10;  // more than latency times throughput; they and the operands fit the registers

TWOFOLD_INLINE std::uint32_t sum_of_lanes(const V (&sums)[kPeakSums]) {
  std::uint32_t total = 0;
  for (const V& sum : sums) {
    std::uint32_t lanes[sizeof(V) / 4];
    store_v(lanes, sum);
    for (const std::uint32_t lane : lanes) total += lane;
  }
  return total;
}

std::uint32_t peak_pairs(long repetitions, int weight, int activation) {
  V weights = words_v(weight), activations = words_v(activation), sums[kPeakSums] = {};
  for (long i = 0; i < repetitions; ++i) {
#pragma GCC unroll 16
    for (int s = 0; s < kPeakSums; ++s) {
      TWOFOLD_HOLD(weights);
      add_pairs_v(sums[s], weights, activations);
    }
  }
  return sum_of_lanes(sums);
}

#if defined(TWOFOLD_QUADS)
std::uint32_t peak_bytes(long repetitions, int weight, int activation) {
  V weights = bytes_v(weight), activations = bytes_v(activation), sums[kPeakSums] = {};
  for (long i = 0; i < repetitions; ++i) {
#pragma GCC unroll 16
    for (int s = 0; s < kPeakSums; ++s) {
      TWOFOLD_HOLD(weights);
      add_quads_v(sums[s], weights, activations);
    }
  }
  return sum_of_lanes(sums);
}

constexpr MultiplyAdd kPairs = {"vpdpwssd", kPeakSums * kWidth / 2, kAnyProduct, peak_pairs};
constexpr MultiplyAdd kBytes = {"vpdpbusd", kPeakSums * kWidth, kAnyProduct, peak_bytes};
#else
// Sums of 16 bits are widened before they could overflow, as rarely as that.
std::uint32_t peak_bytes(long repetitions, int weight, int activation) {
  V weights = bytes_v(weight), activations = bytes_v(activation);
  const int product = weight * activation, size = product < 0 ? -product : product;
  const long most = size == 0 ? repetitions : 32767 / (2 * size);
  std::uint32_t total = 0;
  while (repetitions > 0) {
    const long now = repetitions < most ? repetitions : most;
    V sums[kPeakSums] = {};
    for (long i = 0; i < now; ++i) {
#pragma GCC unroll 16
      for (int s = 0; s < kPeakSums; ++s) {
        TWOFOLD_HOLD(weights);
        sums[s] = add_words_v(sums[s], multiply_bytes_v(weights, activations));
        TWOFOLD_HOLD(sums[s]);
      }
    }
    for (V& sum : sums) {
      V wide = {};
      add_pairs_v(wide, sum, words_v(1));
      sum = wide;
    }
    total += sum_of_lanes(sums);
    repetitions -= now;
  }
  return total;
}

constexpr MultiplyAdd kPairs = {"vpmaddwd + vpaddd", kPeakSums * kWidth / 2, kAnyProduct, peak_pairs};
constexpr MultiplyAdd kBytes = {"vpmaddubsw + vpaddw", kPeakSums * kWidth, 32767 / 2, peak_bytes};
#endif

#else
constexpr int kPeakSums = 8;

std::uint32_t peak_pairs(long repetitions, int weight, int activation) {
  std::uint32_t weights = static_cast<std::uint32_t>(weight), sums[kPeakSums] = {};
  const std::uint32_t activations = static_cast<std::uint32_t>(activation);
  for (long i = 0; i < repetitions; ++i) {
#pragma GCC unroll 8
    for (int s = 0; s < kPeakSums; ++s) {
      __asm__("" : "+r"(weights));
      sums[s] += weights * activations;
      __asm__("" : "+r"(sums[s]));
    }
  }
  std::uint32_t total = 0;
  for (const std::uint32_t sum : sums) total += sum;
  return total;
}

constexpr MultiplyAdd kPairs = {"scalar multiply-add", kPeakSums, kAnyProduct, peak_pairs};
constexpr MultiplyAdd kBytes = {nullptr, 0, 0, nullptr};
#endif

}  // namespace
}  // namespace twofold
