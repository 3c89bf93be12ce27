#include "shortlist.hpp"

#include <algorithm>
#include <vector>

#include "chosen_rows.hpp"
#include "top_k.hpp"

namespace twofold {

long shortlist(const SplitLinear& w, const float* logits, const float* x, long rows, long n, long k, std::int64_t* out) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(rows * n));
  const long bad = top_k_rows(logits, rows, w.out_features, n, ids.data());
  if (bad >= 0) return bad;
  for (long row = 0; row < rows; ++row) std::sort(ids.begin() + row * n, ids.begin() + (row + 1) * n);
  std::vector<float> whole(static_cast<std::size_t>(rows * n));
  split_linear_chosen(w, x, rows, ids.data(), n, whole.data());
  const long worse = top_k_rows(whole.data(), rows, n, k, out);  // places in the row's ids, which ascend
  if (worse >= 0) return worse;
  for (long i = 0; i < rows * k; ++i) out[i] = ids[static_cast<std::size_t>(i / k * n + out[i])];
  return -1;
}

}  // namespace twofold
