// A split Linear group from activations to outputs, over the thread pool.
#pragma once

#include <cstddef>
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

// Rows as the product reads them, for one number of planes; room for two, so that their size does not depend on it.
struct QuantisedRows {
  int planes = 0;
  std::vector<std::int16_t> t;
  std::vector<std::int8_t> q;
  std::vector<std::int32_t> sums;
  std::vector<float> unit;

  void resize(const SplitLinear& w, long rows, int n_planes);
  Activations view() const { return {t.data(), q.data(), planes, sums.data(), unit.data()}; }
  std::size_t bytes() const;
};

// What lies between the steps of one split Linear; the next one may use the same.
struct LinearScratch {
  QuantisedRows base, residual;
  std::vector<float> padded;  // products [rows][tiles * 16], before they are finished

  std::size_t bytes() const;
};

// Planes of activations where the base multiplies alone: what it drafts is checked by passes under the plan's planes.
constexpr int kDraftPlanes = 1;

// The steps of a split Linear, for callers that put others between them: prepare, quantise_row and multiply once for each
// row or pass, then finish_member for each row and member unless the product writes directly.
void prepare(const SplitLinear& w, long rows, bool use_residual, LinearScratch& scratch);
void rotate_and_quantise(const Kernels& k, const SplitLinear& w, const float* x, long row, long rows, bool use_residual,
                         LinearScratch& scratch);
// Over the thread pool. `out` [rows][out_features] is written where writes_directly(w), else the scratch.
void multiply(const Kernels& k, const SplitLinear& w, long rows, bool use_residual, LinearScratch& scratch, float* out);
bool writes_directly(const SplitLinear& w);
// Rotate back and add the bias: one member of one row, to that row's outputs `out` [out_features].
void finish_member(const Kernels& k, const SplitLinear& w, const Member& member, const LinearScratch& scratch, long row,
                   float* out);

// x [rows][in_features] to out [rows][out_features].
void split_linear(const SplitLinear& weights, const float* x, long rows, bool use_residual, float* out);

}  // namespace twofold
