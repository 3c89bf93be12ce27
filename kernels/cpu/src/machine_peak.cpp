#include "machine_peak.hpp"

#include <chrono>
#include <cstdlib>
#include <stdexcept>

#include "dispatch.hpp"
#include "float_environment.hpp"
#include "thread_pool.hpp"

namespace twofold {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

const MultiplyAdd& of_kind(const std::string& kind) {
  const Kernels& k = kernels();
  if (kind == "pairs") return k.pairs;
  if (kind == "bytes" && k.bytes.run != nullptr) return k.bytes;
  throw std::invalid_argument("the " + isa() + " tier has no multiply-adds of " + kind);
}

}  // namespace

PeakSample multiply_adds(const std::string& kind, long chunks, long repetitions, int weight, int activation) {
  if (chunks < 1 || repetitions < 1) throw std::invalid_argument("at least one chunk of one repetition");
  const MultiplyAdd& loop = of_kind(kind);
  if (std::abs(weight * activation) > loop.largest) throw std::invalid_argument("a product that the sums cannot take");
  std::vector<std::uint32_t> sums(static_cast<std::size_t>(chunks));
  const Clock::time_point begin = Clock::now();
  parallel(chunks, [&](long chunk) { sums[static_cast<std::size_t>(chunk)] = loop.run(repetitions, weight, activation); });
  PeakSample sample{seconds_since(begin), loop.each * repetitions * chunks, 0};
  for (const std::uint32_t sum : sums) sample.checksum += sum;
  return sample;
}

SweepSeconds sweep_products(const std::vector<const SplitLinear*>& linears, const float* x, long rows, bool use_residual,
                            float* out) {
  const FloatEnvironment environment;
  const Kernels& k = kernels();
  const SplitLinear& first = *linears.front();
  thread_local LinearScratch scratch;
  prepare(first, rows, use_residual, scratch);
  SweepSeconds seconds{};
  Clock::time_point begin = Clock::now();
  for (long row = 0; row < rows; ++row) {
    rotate_and_quantise(k, first, x + row * first.in_features, row, rows, use_residual, scratch);
  }
  seconds.prepare = seconds_since(begin);
  begin = Clock::now();
  for (const SplitLinear* linear : linears) multiply(k, *linear, rows, use_residual, scratch, out);
  seconds.products = seconds_since(begin);
  return seconds;
}

}  // namespace twofold
