// What the tier in force can do at most, and what its products do: what `bench --kernels` divides by each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "split_linear.hpp"

namespace twofold {

struct PeakSample {
  double seconds;
  std::int64_t multiply_adds;
  std::uint32_t checksum;  // weight * activation * multiply_adds modulo 2^32
};

// `chunks` runs of the tier's "pairs" (16-bit products) or "bytes" (8-bit ones) over the thread pool; one chunk stays on the
// caller's thread. Throws std::invalid_argument for a kind that the tier lacks, numbers below 1, or a product too large for
// its sums.
PeakSample multiply_adds(const std::string& kind, long chunks, long repetitions, int weight, int activation);

struct SweepSeconds {
  double prepare;   // rotating and quantising the rows, once, on the caller's thread
  double products;  // all of them, one after the other
};

// The products alone of Linears of one shape that rotate no outputs: x [rows][in_features] is rotated and quantised for the
// first of them, and every product is written to out [rows][out_features], so that the last one remains.
SweepSeconds sweep_products(const std::vector<const SplitLinear*>& linears, const float* x, long rows, bool use_residual,
                            float* out);

}  // namespace twofold
