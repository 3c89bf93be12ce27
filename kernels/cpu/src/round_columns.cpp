#include "round_columns.hpp"

#include <algorithm>
#include <vector>

#include "dispatch.hpp"
#include "float_environment.hpp"
#include "thread_pool.hpp"

namespace twofold {

void round_columns(float* weights, const float* target, const float* feedback, const float* scale, long columns, long rows,
                   int inner, int highest, std::int8_t* levels) {
  const FloatEnvironment environment;
  const Kernels& k = kernels();
  // a column's coefficients side by side: strided by a power of two they would share a few sets of the cache
  const auto size = static_cast<std::size_t>(columns);
  std::vector<float> by_column(size * size);
  for (std::size_t before = 0; before < size; ++before) {
    for (std::size_t column = before + 1; column < size; ++column) {
      by_column[column * size + before] = feedback[before * size + column];
    }
  }
  const RoundColumnsArgs args{weights, target, by_column.data(), scale, levels, columns, rows,
                              inner > 0, static_cast<float>(inner), static_cast<float>(highest)};
  parallel((rows + kMaxRoundedStrip - 1) / kMaxRoundedStrip, [&](long strip) {
    thread_local std::vector<float> errors;
    errors.resize(size * kMaxRoundedStrip);
    k.round_columns(args, strip * kMaxRoundedStrip, std::min(rows, (strip + 1) * kMaxRoundedStrip), errors.data());
  });
}

}  // namespace twofold
