#include "pass_ops.hpp"

#include <algorithm>
#include <vector>

#include "bands.hpp"
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

void argmax_rows(const float* logits, long rows, long vocab, std::int64_t* out) {
  const FloatEnvironment environment;
  const Kernels& k = kernels();
  // In bands, as the head's product wrote them: most of a band is in the cache of the core that reads it again.
  const long pieces = (vocab + kTotalPiece - 1) / kTotalPiece;
  std::vector<long> best(static_cast<std::size_t>(rows * pieces));
  parallel_bands(pieces, [&](long begin, long end) {
    for (long row = 0; row < rows; ++row) {
      for (long piece = begin; piece < end; ++piece) {
        const long start = piece * kTotalPiece;
        const long place = k.argmax(logits + row * vocab + start, std::min(kTotalPiece, vocab - start));
        best[static_cast<std::size_t>(row * pieces + piece)] = place < 0 ? -1 : start + place;
      }
    }
  });
  for (long row = 0; row < rows; ++row) {
    const float* x = logits + row * vocab;
    const long* of_piece = best.data() + row * pieces;
    long highest = of_piece[0];
    for (long piece = 0; piece < pieces && highest >= 0; ++piece) {
      if (of_piece[piece] < 0 || x[of_piece[piece]] > x[highest]) highest = of_piece[piece];
    }
    out[row] = highest;
  }
}

double softmax_total_of(const float* x, long n, float peak, float sharpness) {
  const FloatEnvironment environment;
  const Kernels& k = kernels();
  const long pieces = (n + kTotalPiece - 1) / kTotalPiece;
  std::vector<double> totals(static_cast<std::size_t>(pieces));
  parallel_bands(pieces, [&](long begin, long end) {
    for (long piece = begin; piece < end; ++piece) {
      const long start = piece * kTotalPiece;
      totals[static_cast<std::size_t>(piece)] = k.softmax_total(x + start, std::min(kTotalPiece, n - start), peak, sharpness);
    }
  });
  double total = 0.0;
  for (const double piece : totals) total += piece;
  return total;
}

}  // namespace twofold
