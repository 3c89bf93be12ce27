#include "pass_ops.hpp"

#include <algorithm>
#include <vector>

#include "dispatch.hpp"
#include "float_environment.hpp"
#include "thread_pool.hpp"

namespace twofold {
namespace {

constexpr long kElementsAChunk = 1 << 13;

// body(begin, end) over ranges of 0..n-1 that are worth a thread each.
template <class Body>
void over_ranges(long n, long elements_each, const Body& body) {
  const long step = std::max(1L, kElementsAChunk / std::max(1L, elements_each));
  parallel((n + step - 1) / step, [&](long chunk) { body(chunk * step, std::min(n, (chunk + 1) * step)); });
}

}  // namespace

void rms_norm_rows(const float* x, const float* weight, float eps, long rows, long n, float* out) {
  const FloatEnvironment environment;
  const Kernels& k = kernels();
  over_ranges(rows, n, [&](long begin, long end) {
    for (long row = begin; row < end; ++row) k.rms_norm(x + row * n, weight, eps, n, out + row * n);
  });
}

void rope_rows(const float* x, const float* cos, const float* sin, long rows, long heads, long dim, long half, float* out) {
  const FloatEnvironment environment;
  const Kernels& k = kernels();
  over_ranges(rows, heads * dim, [&](long begin, long end) {
    for (long row = begin; row < end; ++row) {
      k.rope(x + row * heads * dim, cos + row * half, sin + row * half, heads, dim, half, out + row * heads * dim);
    }
  });
}

void silu_mul_all(const float* gate, const float* up, long n, float* out) {
  const FloatEnvironment environment;
  const Kernels& k = kernels();
  over_ranges(n, 4, [&](long begin, long end) { k.silu_mul(gate + begin, up + begin, end - begin, out + begin); });
}

void gelu_mul_all(const float* gate, const float* up, long n, float* out) {
  const FloatEnvironment environment;
  const Kernels& k = kernels();
  over_ranges(n, 4, [&](long begin, long end) { k.gelu_mul(gate + begin, up + begin, end - begin, out + begin); });
}

void add_all(const float* x, const float* y, long n, float* out) {
  const FloatEnvironment environment;
  const Kernels& k = kernels();
  over_ranges(n, 1, [&](long begin, long end) { k.add(x + begin, y + begin, end - begin, out + begin); });
}

long embed_rows(const std::uint16_t* table, long vocab, long hidden, const std::int64_t* tokens, long rows, float* out) {
  for (long row = 0; row < rows; ++row) {
    if (tokens[row] < 0 || tokens[row] >= vocab) return row;
  }
  const FloatEnvironment environment;
  const Kernels& k = kernels();
  for (long row = 0; row < rows; ++row) k.embed(table + tokens[row] * hidden, hidden, out + row * hidden);
  return -1;
}

long argmax_rows(const float* logits, long rows, long vocab, std::int64_t* out) {
  const Kernels& k = kernels();
  over_ranges(rows, vocab, [&](long begin, long end) {
    for (long row = begin; row < end; ++row) out[row] = k.argmax(logits + row * vocab, vocab);
  });
  const std::int64_t* bad = std::find(out, out + rows, -1);
  return bad == out + rows ? -1 : static_cast<long>(bad - out);
}

}  // namespace twofold
