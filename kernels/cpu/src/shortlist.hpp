// A draft's guesses: the whole vocabulary by the head's base, the best of it weighed again in full.
#pragma once

#include <cstdint>

#include "split_linear.hpp"

namespace twofold {

// Each row's k likeliest outputs, best first: of the n largest by `logits` [rows][out_features] those with the largest
// whole product of x [rows][in_features], lowest id first among equals. 1 <= k <= n <= out_features; w as for
// split_linear_chosen. The first row with a NaN, or -1.
long shortlist(const SplitLinear& w, const float* logits, const float* x, long rows, long n, long k, std::int64_t* out);

}  // namespace twofold
