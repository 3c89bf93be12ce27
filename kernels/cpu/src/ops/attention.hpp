// Attention of one row and a few query heads of one KV head over the fp16 cache.
#pragma once

#include "../kernels.hpp"
#include "exponential.hpp"
#include "half.hpp"
#include "vectors.hpp"

namespace twofold {
namespace {

TWOFOLD_INLINE std::int64_t slot_of(const Visible& visible, long j) {
  return j < visible.n_committed ? visible.first + j : visible.path[j - visible.n_committed];
}

// scores[head][j] = Sum16(q[head] . k_j) * scale; q is padded with zeros to whole sixteens.
template <int Heads>
void attention_scores(const AttentionArgs& args, const Visible& visible, long kv_head, const float* q, long q_stride,
                      float* scores, long score_stride) {
  const long n = visible.n_committed + visible.n_path, whole = args.dim / 16 * 16;
  for (long j = 0; j < n; ++j) {
    const std::uint16_t* k = args.k + (slot_of(visible, j) * args.kv_heads + kv_head) * args.dim;
    F16v lanes[Heads]{};
    for (long i = 0; i < whole; i += 16) {
      const F16v key = load_half16(k + i);
      for (int h = 0; h < Heads; ++h) add_to(lanes[h], load16(q + h * q_stride + i) * key);
    }
    if (whole < args.dim) {
      const F16v key = load_half_tail(k + whole, args.dim - whole);
      for (int h = 0; h < Heads; ++h) add_to(lanes[h], load16(q + h * q_stride + whole) * key);
    }
    for (int h = 0; h < Heads; ++h) scores[h * score_stride + j] = sum_lanes(lanes[h]) * args.scale;
  }
}

// Scores to exp(score - max), in place; returns their Sum16 over the ordinal of j.
TWOFOLD_INLINE float softmax_weights(float* scores, long n) {
  float highest = scores[0];
  for (long j = 1; j < n; ++j) highest = scores[j] > highest || scores[j] != scores[j] ? scores[j] : highest;
  for (long j = 0; j < n; ++j) scores[j] = exp_nonpositive(scores[j] - highest);
  F16v lanes = zero16();
  const long whole = n / 16 * 16;
  for (long j = 0; j < whole; j += 16) add_to(lanes, load16(scores + j));
  if (whole < n) add_to(lanes, load_tail(scores + whole, n - whole));
  return sum_lanes(lanes);
}

// out[head] = (sum of weights[head][j] * v_j, j ascending, from +0) / totals[head].
template <int Heads>
void attention_values(const AttentionArgs& args, const Visible& visible, long kv_head, const float* weights,
                      long weight_stride, const float* totals, float* out) {
  const long n = visible.n_committed + visible.n_path;
  for (long i = 0; i < args.v_dim; i += 16) {
    const long count = args.v_dim - i < 16 ? args.v_dim - i : 16;
    F16v sums[Heads]{};
    for (long j = 0; j < n; ++j) {
      const std::uint16_t* v = args.v + (slot_of(visible, j) * args.kv_heads + kv_head) * args.v_dim + i;
      const F16v value = count == 16 ? load_half16(v) : load_half_tail(v, count);
      for (int h = 0; h < Heads; ++h) add_to(sums[h], weights[h * weight_stride + j] * value);
    }
    for (int h = 0; h < Heads; ++h) {
      const F16v attended = sums[h] / totals[h];
      __builtin_memcpy(out + h * args.v_dim + i, &attended, static_cast<unsigned long>(count) * sizeof(float));
    }
  }
}

template <int Heads>
void attend(const AttentionArgs& args, const Visible& visible, long row, long head, float* scratch) {
  const long n = visible.n_committed + visible.n_path, kv_head = head / (args.heads / args.kv_heads);
  const long q_stride = (args.dim + 15) / 16 * 16, score_stride = (n + 15) / 16 * 16;
  float *q = scratch, *scores = scratch + Heads * q_stride;
  for (int h = 0; h < Heads; ++h) {
    const float* from = args.q + (row * args.heads + head + h) * args.dim;
    for (long i = 0; i < q_stride; ++i) q[h * q_stride + i] = i < args.dim ? from[i] : 0.0f;
  }
  attention_scores<Heads>(args, visible, kv_head, q, q_stride, scores, score_stride);
  float totals[Heads];
  for (int h = 0; h < Heads; ++h) totals[h] = softmax_weights(scores + h * score_stride, n);
  float* out = args.out + (row * args.heads + head) * args.v_dim;
  attention_values<Heads>(args, visible, kv_head, scores, score_stride, totals, out);
}

void attention(const AttentionArgs& args, const Visible& visible, long row, long head, long n_heads, float* scratch) {
  switch (n_heads) {
    case 1: return attend<1>(args, visible, row, head, scratch);
    case 2: return attend<2>(args, visible, row, head, scratch);
    case 3: return attend<3>(args, visible, row, head, scratch);
    default: return attend<4>(args, visible, row, head, scratch);
  }
}

}  // namespace
}  // namespace twofold
