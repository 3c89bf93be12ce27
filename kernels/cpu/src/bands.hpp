// Work over neighbouring items, so that each thread reads one sequential stream and still none waits for a disturbed one.
#pragma once

#include <algorithm>
#include <atomic>

#include "thread_pool.hpp"

namespace twofold {

constexpr long kMostBands = 256;  // on the stack; further threads have none
constexpr long kPiecesABand = 8;  // 4 and 32 took as long

// body(begin, end) over 0..n-1 in pieces. A band of neighbouring pieces for each thread, in ascending order: what a piece
// prefetched behind its end is the next piece of the same thread. A thread that is done takes pieces of other bands.
template <class Body>
void parallel_bands(long n, const Body& body) {
  struct alignas(64) Band {
    std::atomic<long> next;
  } bands[kMostBands];
  const long n_bands = std::min({n, static_cast<long>(threads()), kMostBands});
  if (n_bands <= 1) {
    if (n > 0) body(0L, n);
    return;
  }
  for (long i = 0; i < n_bands; ++i) bands[i].next.store(0, std::memory_order_relaxed);
  parallel(n_bands, [&](long own) {
    for (long i = 0; i < n_bands; ++i) {
      const long band = (own + i) % n_bands, begin = n * band / n_bands, size = n * (band + 1) / n_bands - begin;
      const long pieces = std::min(size, kPiecesABand);
      for (long p = bands[band].next++; p < pieces; p = bands[band].next++) {
        body(begin + size * p / pieces, begin + size * (p + 1) / pieces);
      }
    }
  });
}

}  // namespace twofold
