// The split product of one row, base and residual in one loop, or the base alone: each register of activations is loaded once
// for both, and a tile's outputs stay in registers from its first group to its last.
//
// Sums are those of split_stream.hpp, kept apart, so no bit differs. It saves the calls for each group and part: on a Zen 1
// core 0.91 of the cycles in one plane (6 and 8 bits; 0.85 with 4), 0.97 in two, and 0.82 of the base alone. All of a sub-block's
// base before its residual took 0.92 and 1.01; activations spread over the lanes beforehand 0.88, for eight times their bytes.
#pragma once

#include "split_stream.hpp"

namespace twofold {
namespace {

// A tile's base or residual in one scale group. `Like`: it keeps as many sums as one row of a pass of so many does.
template <class Operand, class Source, int Like>
struct SingleSums {
  typename Operand::template Sums<Like> half[kHalves];

  template <int Vector>
  TWOFOLD_MEMBER void add(const Source& source, const std::uint8_t* codes, long h, const typename Operand::Quad& x) {
    half[h].template add<Vector>(Operand::template decode<Vector>(source, codes, h), x);
  }
  // y += fp32(n) * unit * scale
  TWOFOLD_MEMBER void add_scaled(F16v& y, std::int32_t excess, float unit, const std::uint16_t* scales) const {
    F16v total;
    for (long h = 0; h < kHalves; ++h) total.part[h] = floats_v(half[h].total(excess));
    y = y + unit * total * load_half16(scales);
  }
};

template <int Vector, bool kWhole, class Quad, class BaseSums, class ResidualSums, class Residual>
TWOFOLD_INLINE void single_vector(const BaseSource& base, const std::uint8_t* base_codes, BaseSums& base_sums,
                                  const Residual& residual, const std::uint8_t* residual_codes, ResidualSums& residual_sums,
                                  const GroupRows& x, long input) {
  const Quad quad(x, 0, input + 4 * Vector);
#pragma GCC unroll 2
  for (long h = 0; h < kHalves; ++h) {
    base_sums.template add<Vector>(base, base_codes, h, quad);
    if (kWhole) residual_sums.template add<Vector>(residual, residual_codes, h, quad);
  }
}

// One row whose base and residual meet the same activations; without the residual where it is not `kWhole`.
template <int Planes, bool kWhole, class Residual>
__attribute__((noinline)) void single_tiles(const BaseSource& base_source, const Residual& residual_source,
                                            const ProductArgs& args, long tile_begin, long tile_end) {
  typedef OperandOf<Planes, BaseSource> BaseOperand;
  typedef OperandOf<Planes, Residual> ResidualOperand;
  typedef typename BaseOperand::Quad Quad;
  constexpr int kLike = kWhole && kWidth < 64 ? 2 : 1;  // fewer sums: base and residual do not wait for each other either
  constexpr long kBaseBytes = 32 * BaseSource::kBits, kResidualBytes = 32 * Residual::kBits;
  const BaseSource base = base_source;
  const Residual residual = residual_source;
  for (long tile = tile_begin; tile < tile_end; ++tile) {
    F16v base_y = zero16(), residual_y = zero16();
    for (long group = 0; group < args.groups; ++group) {
      const TileGroup at = tile_group(args, tile, group);
      const GroupRows x = group_rows(args.x_base, args, group, 0);
      const std::uint8_t* b = args.base.codes + at.first_block * kBaseBytes;
      const std::uint8_t* r = args.residual.codes + at.first_block * kResidualBytes;
      SingleSums<BaseOperand, BaseSource, kLike> base_sums;
      SingleSums<ResidualOperand, Residual, kLike> residual_sums;
      for (long block = 0; block < at.n_blocks; ++block, b += kBaseBytes, r += kResidualBytes) {
        prefetch_block<BaseSource::kBits>(b + kAheadBlocks * kBaseBytes);
        if (kWhole) prefetch_block<Residual::kBits>(r + kAheadBlocks * kResidualBytes);
        single_vector<0, kWhole, Quad>(base, b, base_sums, residual, r, residual_sums, x, 16 * block);
        single_vector<1, kWhole, Quad>(base, b, base_sums, residual, r, residual_sums, x, 16 * block);
        single_vector<2, kWhole, Quad>(base, b, base_sums, residual, r, residual_sums, x, 16 * block);
        single_vector<3, kWhole, Quad>(base, b, base_sums, residual, r, residual_sums, x, 16 * block);
      }
      const std::int32_t sum = x.sums[0];
      base_sums.add_scaled(base_y, args.base.offset * sum, x.unit[0], args.base.scales + at.scales);
      if (!kWhole) continue;
      residual_sums.add_scaled(residual_y, args.residual.offset * sum, x.unit[0], args.residual.scales + at.scales);
    }
    alignas(64) float y_b[kTileRows], y_r[kTileRows];
    store16(base_y, y_b);
    store16(residual_y, y_r);
    finish_tile(args, tile, 0, 1, y_b, y_r, kTileRows);
  }
}

}  // namespace
}  // namespace twofold
