// The other operations of a pass over the thread pool; shapes and meanings as in kernels/naive.
#pragma once

#include <cstdint>

#include "kernels.hpp"

namespace twofold {

void rms_norm_rows(const float* x, const float* weight, float eps, long rows, long n, float* out);
void rope_rows(const float* x, const float* cos, const float* sin, long rows, long heads, long dim, long half, float* out);
void silu_mul_all(const float* gate, const float* up, long n, float* out);
void gelu_mul_all(const float* gate, const float* up, long n, float* out);
void add_all(const float* x, const float* y, long n, float* out);
// The first token outside the vocabulary, or -1 when all rows were written.
long embed_rows(const std::uint16_t* table, long vocab, long hidden, const std::int64_t* tokens, long rows, float* out);
// Each row's argmax, -1 where a value is not finite.
void argmax_rows(const float* logits, long rows, long vocab, std::int64_t* out);
// The sum of exp((x - peak) * sharpness), piece by piece; no value is above peak.
double softmax_total_of(const float* x, long n, float peak, float sharpness);

}  // namespace twofold
