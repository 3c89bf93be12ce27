// Partial selection: what a draft tree's children are chosen by.
#pragma once

#include <cstdint>

namespace twofold {

// The k ids of each row's largest logits by (-logit, id), best first: [rows][vocab] to [rows][k], 1 <= k <= vocab.
// The first row with a NaN, or -1.
long top_k_rows(const float* logits, long rows, long vocab, long k, std::int64_t* out);

}  // namespace twofold
