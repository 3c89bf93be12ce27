#include "top_k.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "thread_pool.hpp"

namespace twofold {
namespace {

constexpr long kBlock = 64;
constexpr long kLeastPart = 1 << 13;  // logits that are worth a thread

struct Candidate {
  float value;
  std::int32_t id;

  bool operator<(const Candidate& other) const { return value > other.value || (value == other.value && id < other.id); }
};

// The best k of what has been seen, and some that were good enough when they came: sorting them out costs less by
// the dozen than one by one. Ids come in ascending order, so an equal of the k-th best is no better than it.
class Best {
 public:
  explicit Best(long k) : k_(k), most_(k + std::max(k, kBlock)) { kept_.reserve(static_cast<std::size_t>(most_)); }

  bool full() const { return is_full_; }
  float least() const { return least_; }

  void offer(float value, long id) {
    if (is_full_ && !(value > least_)) return;
    kept_.push_back({value, static_cast<std::int32_t>(id)});
    if (static_cast<long>(kept_.size()) == most_ || (!is_full_ && static_cast<long>(kept_.size()) == k_)) prune();
  }

  // The best k, or all where there were fewer, in any order.
  std::vector<Candidate> take() {
    if (static_cast<long>(kept_.size()) > k_) prune();
    return std::move(kept_);
  }

 private:
  void prune() {
    std::nth_element(kept_.begin(), kept_.begin() + (k_ - 1), kept_.end());
    kept_.resize(static_cast<std::size_t>(k_));
    least_ = kept_.back().value;
    is_full_ = true;
  }

  long k_, most_;
  bool is_full_ = false;
  float least_ = 0.0f;
  std::vector<Candidate> kept_;
};

// Whether a block holds something above `least` or a NaN; nearly always neither, so this is the loop that counts.
bool worth_a_look(const float* x, float least) {
  int found = 0;
  for (long i = 0; i < kBlock; ++i) found |= !(x[i] <= least);
  return found != 0;
}

// Offers x[begin .. end - 1]; false where one is a NaN.
bool offer_range(const float* x, long begin, long end, Best& best) {
  for (long start = begin; start < end; start += kBlock) {
    const long stop = std::min(end, start + kBlock);
    if (best.full() && stop - start == kBlock && !worth_a_look(x + start, best.least())) continue;
    for (long i = start; i < stop; ++i) {
      if (x[i] != x[i]) return false;
      best.offer(x[i], i);
    }
  }
  return true;
}

}  // namespace

long top_k_rows(const float* logits, long rows, long vocab, long k, std::int64_t* out) {
  // Fewer rows than threads: parts of a row side by side, as the head's product left them in the caches.
  const long parts = rows >= threads() ? 1 : std::clamp(vocab / std::max(kLeastPart, 8 * k), 1L, static_cast<long>(threads()));
  std::vector<std::vector<Candidate>> found(static_cast<std::size_t>(rows * parts));
  std::vector<char> fine(found.size());
  parallel(rows * parts, [&](long index) {
    const long row = index / parts, part = index % parts;
    Best best(k);
    const std::size_t place = static_cast<std::size_t>(index);
    fine[place] = offer_range(logits + row * vocab, vocab * part / parts, vocab * (part + 1) / parts, best);
    found[place] = best.take();
  });
  const auto bad = std::find(fine.begin(), fine.end(), 0);
  if (bad != fine.end()) return static_cast<long>(bad - fine.begin()) / parts;
  for (long row = 0; row < rows; ++row) {
    std::vector<Candidate>& all = found[static_cast<std::size_t>(row * parts)];
    for (long part = 1; part < parts; ++part) {
      const std::vector<Candidate>& more = found[static_cast<std::size_t>(row * parts + part)];
      all.insert(all.end(), more.begin(), more.end());
    }
    if (static_cast<long>(all.size()) > k) std::nth_element(all.begin(), all.begin() + (k - 1), all.end());
    std::sort(all.begin(), all.begin() + k);
    for (long i = 0; i < k; ++i) out[row * k + i] = all[static_cast<std::size_t>(i)].id;
  }
  return -1;
}

}  // namespace twofold
