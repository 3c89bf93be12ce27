// What both ways of computing a split product share: where a (tile, group) lies, and how a tile's sums become outputs.
#pragma once

#include "../kernels.hpp"
#include "half.hpp"
#include "vectors.hpp"

namespace twofold {
namespace {

// The rows of one group: row r's t at t + r * stride, its planes at q + 2 * r * stride and one stride later.
struct GroupRows {
  const std::int16_t* t;
  const std::int8_t* q;
  const std::int32_t* sums;
  const float* unit;
  long stride;
};

TWOFOLD_INLINE GroupRows group_rows(const Activations& x, const ProductArgs& args, long group, long row) {
  const long at = group * args.rows + row;
  return {x.t + at * args.group_size, x.q + 2 * at * args.group_size, x.sums + at, x.unit + at, args.group_size};
}

struct TileGroup {
  long group, first_block, n_blocks, scales;
};

TWOFOLD_INLINE TileGroup tile_group(const ProductArgs& args, long tile, long group) {
  const long blocks_a_group = args.group_size / kBlockInputs, first = group * blocks_a_group;
  const long n_blocks = args.blocks - first < blocks_a_group ? args.blocks - first : blocks_a_group;
  return {group, tile * args.blocks + first, n_blocks, (tile * args.groups + group) * kTileRows};
}

TWOFOLD_INLINE float exchanged(float y, Exchange exchange) {
  if (exchange == Exchange::float16) return through_half(y);
  return exchange == Exchange::bfloat16 ? through_bfloat(y) : y;
}

// y = y_b plus the exchanged y_r, for rows whose sums lie `acc_stride` floats apart.
TWOFOLD_INLINE void finish_tile(const ProductArgs& args, long tile, long row_begin, long n_rows, const float* y_b,
                                const float* y_r, long acc_stride) {
  for (long row = 0; row < n_rows; ++row, y_b += acc_stride, y_r += acc_stride) {
    float* y = args.y + (row_begin + row) * args.stride + tile * kTileRows;
    const F16v base = load16(y_b);
    if (!args.use_residual) {
      store16(base, y);
      continue;
    }
    const F16v residual = load16(y_r);
    if (args.exchange == Exchange::float32) {
      store16(base + residual, y);
      continue;
    }
    float travelled[16];
    store16(residual, travelled);
    for (float& value : travelled) value = exchanged(value, args.exchange);
    store16(base + load16(travelled), y);
  }
}

}  // namespace
}  // namespace twofold
