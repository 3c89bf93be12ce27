// Single outputs of a split Linear whose rows are addressable (the head): a draft's shortlist, weighed in full.
#pragma once

#include <cstdint>

#include "split_linear.hpp"

namespace twofold {

// Outputs ids[row][0..n-1] of each row of x, base and residual: out [rows][n]. The Linear has one member, whose outputs
// are not rotated; ids are within it.
void split_linear_chosen(const SplitLinear& w, const float* x, long rows, const std::int64_t* ids, long n, float* out);

}  // namespace twofold
