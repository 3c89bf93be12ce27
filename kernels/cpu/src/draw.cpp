#include "draw.hpp"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "dispatch.hpp"
#include "float_environment.hpp"
#include "pass_ops.hpp"
#include "top_k.hpp"

namespace twofold {
namespace {

constexpr long kFirstPrefix = 64, kGrowth = 16;

// The likeliest ids, their weights, and the sums of these up to each.
struct Prefix {
  std::vector<std::int64_t> ids;
  std::vector<double> mass, reached;

  void take(const float* x, long n, long count, float peak, float sharpness) {
    const std::size_t size = static_cast<std::size_t>(count);
    ids.resize(size), mass.resize(size), reached.resize(size);
    if (top_k_rows(x, 1, n, count, ids.data()) >= 0) throw std::invalid_argument("NaN among the logits of row 0");
    const Kernels& k = kernels();
    double sum = 0.0;
    for (std::size_t i = 0; i < size; ++i) {
      mass[i] = k.softmax_total(x + ids[i], 1, peak, sharpness);  // of one value: its weight
      reached[i] = sum += mass[i];
    }
  }
};

}  // namespace

long draw(const float* x, long n, float peak, const Filters& filters, double u) {
  const FloatEnvironment environment;
  Prefix prefix;
  const long limit = filters.keep > 0 ? std::min(filters.keep, n) : n;
  const long first = filters.keep > 0 ? limit : std::min(kFirstPrefix, limit);  // all that are kept: their sum is asked for
  double total = first < limit ? softmax_total_of(x, n, peak, filters.sharpness) : 0.0;
  for (long count = first;; count = std::min(count * kGrowth, limit)) {
    prefix.take(x, n, count, peak, filters.sharpness);
    const auto begin = prefix.reached.begin();
    bool complete = count == limit;
    long kept = count;
    if (complete) total = prefix.reached.back();
    if (filters.top_p < 1.0) {
      const long cut = std::lower_bound(begin, prefix.reached.end(), filters.top_p * total) - begin + 1;
      complete = complete || cut <= kept;
      kept = std::min(kept, cut);
    }
    if (filters.min_p > 0.0) {
      const long above = std::count_if(prefix.mass.begin(), prefix.mass.end(), [&](double m) { return m >= filters.min_p; });
      complete = complete || above < count;
      kept = std::min(kept, std::max(1L, above));  // the likeliest stays, also below a peak that none reaches
    }
    const double mass_kept = complete ? prefix.reached[static_cast<std::size_t>(kept - 1)] : total;
    const long pick = std::upper_bound(begin, begin + kept, u * mass_kept) - begin;
    if (complete || (filters.top_p == 1.0 && filters.min_p == 0.0 && pick < kept)) {
      return prefix.ids[static_cast<std::size_t>(std::min(pick, kept - 1))];
    }
  }
}

}  // namespace twofold
