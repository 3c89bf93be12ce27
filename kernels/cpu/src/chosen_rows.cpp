#include "chosen_rows.hpp"

#include <algorithm>
#include <vector>

namespace twofold {
namespace {

// The tiles that hold the chosen outputs, side by side; bytes are copied, since products read whole runs of tiles.
struct Gathered {
  std::vector<std::int64_t> tiles;
  std::vector<std::uint8_t> base_codes, residual_codes;
  std::vector<std::uint16_t> base_scales, residual_scales;
  std::vector<float> bias, y;

  void choose(const std::int64_t* ids, long n) {
    tiles.clear();
    for (long i = 0; i < n; ++i) tiles.push_back(ids[i] / kTileRows);
    std::sort(tiles.begin(), tiles.end());
    tiles.erase(std::unique(tiles.begin(), tiles.end()), tiles.end());
  }
  long place(std::int64_t id) const {
    const auto found = std::lower_bound(tiles.begin(), tiles.end(), id / kTileRows);
    return static_cast<long>(found - tiles.begin()) * kTileRows + static_cast<long>(id % kTileRows);
  }
  template <class T>
  const T* copy(const T* from, long a_tile, std::vector<T>& to) const {
    to.resize(tiles.size() * static_cast<std::size_t>(a_tile));
    for (std::size_t i = 0; i < tiles.size(); ++i) {
      std::copy_n(from + tiles[i] * a_tile, a_tile, to.begin() + static_cast<std::ptrdiff_t>(i) * a_tile);
    }
    return to.data();
  }
};

}  // namespace

void split_linear_chosen(const SplitLinear& w, const float* x, long rows, const std::int64_t* ids, long n, float* out) {
  if (rows == 0 || n == 0) return;
  thread_local Gathered part;
  part.choose(ids, rows * n);
  const long tiles = static_cast<long>(part.tiles.size()), outputs = tiles * kTileRows;
  SplitLinear few = w;
  few.tiles = tiles, few.out_features = outputs;
  few.members = {{outputs, 0, 0, nullptr}};
  few.base.codes = part.copy(w.base.codes, w.blocks * 32 * w.base.bits, part.base_codes);
  few.residual.codes = part.copy(w.residual.codes, w.blocks * 32 * w.residual.bits, part.residual_codes);
  few.base.scales = part.copy(w.base.scales, w.groups * kTileRows, part.base_scales);
  few.residual.scales = part.copy(w.residual.scales, w.groups * kTileRows, part.residual_scales);
  if (w.bias != nullptr) {
    part.bias.assign(static_cast<std::size_t>(outputs), 0.0f);
    for (long i = 0; i < rows * n; ++i) part.bias[static_cast<std::size_t>(part.place(ids[i]))] = w.bias[ids[i]];
    few.bias = part.bias.data();
  }
  part.y.resize(static_cast<std::size_t>(rows * outputs));
  split_linear(few, x, rows, true, part.y.data());
  for (long row = 0; row < rows; ++row) {
    for (long i = 0; i < n; ++i) {
      out[row * n + i] = part.y[static_cast<std::size_t>(row * outputs + part.place(ids[row * n + i]))];
    }
  }
}

}  // namespace twofold
