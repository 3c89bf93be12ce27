// A split Linear group from activations to outputs, over the thread pool.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels.hpp"

namespace twofold {

// One Linear of the group: unpadded rows, its first tile, and its part of the output.
struct Member {
  long rows, first_tile, first_output;
  const float* mix;  // [m][m] or null
};

// Views of arrays that the caller keeps alive; null where the group has none.
struct SplitLinear {
  long in_features, out_features, tiles, blocks, groups, group_size;
  Codes base, residual;
  int base_planes, residual_planes;
  Exchange exchange;
  const std::int8_t* input_signs;
  const float* mix_in;
  const std::int8_t* output_signs;
  const float* bias;
  std::vector<Member> members;
};

// x [rows][in_features] to out [rows][out_features].
void split_linear(const SplitLinear& weights, const float* x, long rows, bool use_residual, float* out);

}  // namespace twofold
