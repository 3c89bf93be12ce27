// The split product of few rows: each register of codes is decoded once and meets all rows before the next is loaded.
#pragma once

#include "split_operands.hpp"

namespace twofold {
namespace {

#if defined(__AVX512BW__)
constexpr int kStreamRows = 4;
#elif defined(TWOFOLD_QUADS)
constexpr int kStreamRows = 2;  // two planes of more rows do not fit sixteen registers
#else
constexpr int kStreamRows = 4;
#endif
constexpr long kAheadBlocks = 16;  // the code is read in one sequential stream, this many sub-blocks behind its prefetch

template <int Bits>
TWOFOLD_INLINE void prefetch_block(const std::uint8_t* block) {
  for (int line = 0; line < (Bits + 1) / 2; ++line) __builtin_prefetch(block + 64 * line, 0, 3);
}

template <class Operand, int Vector, int Rows, class Sums, class Source>
TWOFOLD_INLINE void stream_vector(const Source& source, const std::uint8_t* packed, long half, const GroupRows& x, long input,
                                  Sums (&sums)[Rows][kHalves]) {
  const auto integers = Operand::template decode<Vector>(source, packed, half);
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) {
    sums[r][half].template add<Vector>(integers, typename Operand::Quad(x, r, input + 4 * Vector));
  }
}

// acc[row][16] += fp32(n) * unit * scale for `Rows` rows of one (tile, group).
template <int Rows, class Operand, class Source>
TWOFOLD_INLINE void stream_group(const Source& source, const std::uint8_t* packed, long n_blocks,
                                            const GroupRows& rows, int offset, const std::uint16_t* scales, float* acc) {
  typedef typename Operand::template Sums<Rows> Sums;
  const GroupRows x = rows;
  const Source local = source;
  constexpr long kBytes = 32 * Source::kBits;
  Sums sums[Rows][kHalves];
  for (long block = 0; block < n_blocks; ++block, packed += kBytes) {
    prefetch_block<Source::kBits>(packed + kAheadBlocks * kBytes);
#pragma GCC unroll 2
    for (long h = 0; h < kHalves; ++h) {
      stream_vector<Operand, 0, Rows, Sums>(local, packed, h, x, 16 * block, sums);
      stream_vector<Operand, 1, Rows, Sums>(local, packed, h, x, 16 * block, sums);
      stream_vector<Operand, 2, Rows, Sums>(local, packed, h, x, 16 * block, sums);
      stream_vector<Operand, 3, Rows, Sums>(local, packed, h, x, 16 * block, sums);
    }
  }
  const F16v scale = load_half16(scales);
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) {
    F16v total;
    for (long h = 0; h < kHalves; ++h) total.part[h] = floats_v(sums[r][h].total(offset * x.sums[r]));
    store16(load16(acc + r * kTileRows) + x.unit[r] * total * scale, acc + r * kTileRows);
  }
}

template <int Rows, class Source>
TWOFOLD_INLINE void stream_half(const Source& source, const Codes& codes, const Activations& x, const ProductArgs& args,
                                const TileGroup& at, float* acc) {
  const std::uint8_t* packed = codes.codes + at.first_block * 32 * Source::kBits;
  const std::uint16_t* scales = codes.scales + at.scales;
  const GroupRows rows = group_rows(x, args, at.group, 0);
  const int offset = codes.offset;
  if (x.planes == 1 && source.is_small()) {
    return stream_group<Rows, OperandOf<1, Source>>(source, packed, at.n_blocks, rows, offset, scales, acc);
  }
  stream_group<Rows, OperandOf<2, Source>>(source, packed, at.n_blocks, rows, offset, scales, acc);
}

template <int Rows, class Residual>
void stream_tiles(const BaseSource& base, const Residual& residual, const ProductArgs& args, long tile_begin, long tile_end) {
  alignas(64) float y_b[Rows * kTileRows], y_r[Rows * kTileRows];
  for (long tile = tile_begin; tile < tile_end; ++tile) {
    __builtin_memset(y_b, 0, sizeof y_b);
    __builtin_memset(y_r, 0, sizeof y_r);
    for (long group = 0; group < args.groups; ++group) {
      const TileGroup at = tile_group(args, tile, group);
      stream_half<Rows>(base, args.base, args.x_base, args, at, y_b);
      if (args.use_residual) stream_half<Rows>(residual, args.residual, args.x_residual, args, at, y_r);
    }
    finish_tile(args, tile, 0, Rows, y_b, y_r, kTileRows);
  }
}

}  // namespace
}  // namespace twofold
