// The split product of a run of tiles. What differs between tiers is how a (tile, group) of codes meets the rows' int16
// activations; that part is `group_sums` in split_product_scalar.hpp or split_product_simd.hpp.
#pragma once

#include "../kernels.hpp"
#include "half.hpp"
#include "vectors.hpp"

#if defined(__AVX2__)
#include "split_product_simd.hpp"
#else
#include "split_product_scalar.hpp"
#endif

namespace twofold {
namespace {

constexpr long kRowsAtOnce = 128;  // bounds the accumulators: 16 floats a row, base and residual, in the L2 cache

// acc[row][16] += fp32(n) * scale for every row of one (tile, group).
TWOFOLD_INLINE void add_group(const Codes& codes, const Activations& x, const ProductArgs& args, long tile, long group,
                              long row_begin, long n_rows, float* acc) {
  const long blocks_a_group = args.group_size / kBlockInputs;
  const long first = group * blocks_a_group;
  const long n_blocks = args.blocks - first < blocks_a_group ? args.blocks - first : blocks_a_group;
  const long block_bytes = 32 * codes.bits;
  const std::int16_t* t = x.t + (group * args.rows + row_begin) * args.group_size;
  const F16v scale = load_half16(codes.scales + (tile * args.groups + group) * kTileRows);
  group_sums(codes, codes.codes + (tile * args.blocks + first) * block_bytes, n_blocks, t, args.group_size, n_rows,
             x.sums + group * args.rows + row_begin, scale, acc);
}

TWOFOLD_INLINE float exchanged(float y, Exchange exchange) {
  if (exchange == Exchange::float16) return through_half(y);
  return exchange == Exchange::bfloat16 ? through_bfloat(y) : y;
}

void product_rows(const ProductArgs& args, long tile, long row_begin, long n_rows) {
  alignas(64) float base[kRowsAtOnce * kTileRows], residual[kRowsAtOnce * kTileRows];
  const unsigned long bytes = static_cast<unsigned long>(n_rows * kTileRows) * sizeof(float);
  __builtin_memset(base, 0, bytes);
  if (args.use_residual) __builtin_memset(residual, 0, bytes);
  for (long group = 0; group < args.groups; ++group) {
    add_group(args.base, args.x_base, args, tile, group, row_begin, n_rows, base);
    if (args.use_residual) add_group(args.residual, args.x_residual, args, tile, group, row_begin, n_rows, residual);
  }
  for (long row = 0; row < n_rows; ++row) {
    float* y = args.y + (row_begin + row) * args.stride + tile * kTileRows;
    const float base_unit = args.x_base.unit[row_begin + row];
    for (long i = 0; i < kTileRows; ++i) y[i] = base[row * kTileRows + i] * base_unit;
    if (!args.use_residual) continue;
    const float residual_unit = args.x_residual.unit[row_begin + row];
    for (long i = 0; i < kTileRows; ++i) {
      y[i] += exchanged(residual[row * kTileRows + i] * residual_unit, args.exchange);
    }
  }
}

void product(const ProductArgs& args, long tile_begin, long tile_end) {
  for (long tile = tile_begin; tile < tile_end; ++tile) {
    for (long row = 0; row < args.rows; row += kRowsAtOnce) {
      product_rows(args, tile, row, args.rows - row < kRowsAtOnce ? args.rows - row : kRowsAtOnce);
    }
  }
}

}  // namespace
}  // namespace twofold
