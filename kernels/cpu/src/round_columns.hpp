// Rounding a block's columns with error feedback over the thread pool; shapes and meanings as in kernels/naive.
#pragma once

#include <cstdint>

namespace twofold {

// weights [columns][rows] become the errors. inner 0: every integer up to `highest` is a level.
void round_columns(float* weights, const float* target, const float* feedback, const float* scale, long columns, long rows,
                   int inner, int highest, std::int8_t* levels);

}  // namespace twofold
