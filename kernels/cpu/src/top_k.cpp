#include "top_k.hpp"

#include <algorithm>
#include <vector>

#include "thread_pool.hpp"

namespace twofold {
namespace {

constexpr long kBlock = 64;

// What has been seen of a row, best first. Ids come in ascending order, so an equal logit goes behind its equals.
class Best {
 public:
  Best(long k, std::int64_t* ids) : k_(k), ids_(ids), values_(static_cast<std::size_t>(k)) {}

  bool full() const { return size_ == k_; }
  float least() const { return values_[static_cast<std::size_t>(k_ - 1)]; }

  void insert(float value, long id) {
    if (full() && !(value > least())) return;
    const auto begin = values_.begin(), end = begin + size_;
    const long place = std::upper_bound(begin, end, value, [](float a, float b) { return a > b; }) - begin;
    if (!full()) ++size_;
    std::move_backward(begin + place, begin + size_ - 1, begin + size_);
    std::move_backward(ids_ + place, ids_ + size_ - 1, ids_ + size_);
    values_[static_cast<std::size_t>(place)] = value;
    ids_[place] = id;
  }

 private:
  long k_, size_ = 0;
  std::int64_t* ids_;
  std::vector<float> values_;
};

// Whether a block holds something above `least` or a NaN; nearly always neither, so this is the loop that counts.
bool worth_a_look(const float* x, float least) {
  int found = 0;
  for (long i = 0; i < kBlock; ++i) found |= !(x[i] <= least);
  return found != 0;
}

bool top_k(const float* x, long n, long k, std::int64_t* out) {
  Best best(k, out);
  for (long start = 0; start < n; start += kBlock) {
    const long end = std::min(n, start + kBlock);
    if (best.full() && end - start == kBlock && !worth_a_look(x + start, best.least())) continue;
    for (long i = start; i < end; ++i) {
      if (x[i] != x[i]) return false;
      best.insert(x[i], i);
    }
  }
  return true;
}

}  // namespace

long top_k_rows(const float* logits, long rows, long vocab, long k, std::int64_t* out) {
  std::vector<char> fine(static_cast<std::size_t>(rows));
  parallel(rows, [&](long row) {
    fine[static_cast<std::size_t>(row)] = top_k(logits + row * vocab, vocab, k, out + row * k);
  });
  const auto bad = std::find(fine.begin(), fine.end(), 0);
  return bad == fine.end() ? -1 : static_cast<long>(bad - fine.begin());
}

}  // namespace twofold
