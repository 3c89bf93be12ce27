// The split product in plain C++: the generic tier.
#pragma once

#include "split_group.hpp"

namespace twofold {
namespace {

// The unsigned integers of one sub-block: out[64 * vector + byte].
inline void decode_block(const Codes& codes, const std::uint8_t* block, std::uint8_t* out) {
  if (codes.bits == 2) {
    for (int v = 0; v < 4; ++v) {
      for (int j = 0; j < 64; ++j) out[64 * v + j] = codes.levels[(block[j] >> (2 * v)) & 3];
    }
    return;
  }
  for (int v = 0; v < 4; ++v) {
    const std::uint8_t* nibbles = block + 64 * (v / 2);
    for (int j = 0; j < 64; ++j) out[64 * v + j] = (nibbles[j] >> (4 * (v % 2))) & 15;
  }
  const std::uint8_t* high = block + 128;
  for (int v = 0; v < 4; ++v) {
    if (codes.bits == 8) {
      for (int j = 0; j < 64; ++j) out[64 * v + j] |= ((high[64 * (v / 2) + j] >> (4 * (v % 2))) & 15) << 4;
    }
    if (codes.bits == 6 || codes.bits == 7) {
      for (int j = 0; j < 64; ++j) out[64 * v + j] |= ((high[j] >> (2 * v)) & 3) << 4;
    }
    if (codes.bits == 5 || codes.bits == 7) {
      const std::uint8_t* single = block + 32 * codes.bits - 32 + 8 * v;
      for (int j = 0; j < 64; ++j) out[64 * v + j] |= ((single[j / 8] >> (j % 8)) & 1) << (codes.bits - 1);
    }
  }
}

// acc[row][16] += fp32(n) * unit * scale for n_rows rows of one (tile, group).
inline void scalar_group(const Codes& codes, const TileGroup& at, const GroupRows& x, long n_rows, float* acc) {
  std::uint8_t decoded[16][256];
  const std::uint8_t* packed = codes.codes + at.first_block * 32 * codes.bits;
  for (long block = 0; block < at.n_blocks; ++block) decode_block(codes, packed + block * 32 * codes.bits, decoded[block]);
  for (long row = 0; row < n_rows; ++row, acc += kTileRows) {
    std::int32_t n[16] = {};
    for (long block = 0; block < at.n_blocks; ++block) {
      for (int v = 0; v < 4; ++v) {
        const std::uint8_t* u = decoded[block] + 64 * v;
        const std::int16_t* quad = x.t + row * x.stride + 16 * block + 4 * v;
        const std::int32_t t0 = quad[0], t2 = quad[1], t1 = quad[2], t3 = quad[3];
        for (int i = 0; i < 16; ++i) n[i] += u[4 * i] * t0 + u[4 * i + 1] * t1 + u[4 * i + 2] * t2 + u[4 * i + 3] * t3;
      }
    }
    for (int i = 0; i < 16; ++i) {
      const float scale = half_to_float(codes.scales[at.scales + i]);
      acc[i] += static_cast<float>(n[i] - codes.offset * x.sums[row]) * x.unit[row] * scale;
    }
  }
}

void scalar_tile(const ProductArgs& args, long tile, long row, long n_rows) {
  constexpr long kMost = 128;  // of n_rows
  float y_b[kMost * kTileRows] = {}, y_r[kMost * kTileRows] = {};
  for (long group = 0; group < args.groups; ++group) {
    const TileGroup at = tile_group(args, tile, group);
    scalar_group(args.base, at, group_rows(args.x_base, args, group, row), n_rows, y_b);
    if (args.use_residual) scalar_group(args.residual, at, group_rows(args.x_residual, args, group, row), n_rows, y_r);
  }
  finish_tile(args, tile, row, n_rows, y_b, y_r, kTileRows);
}

void product(const ProductArgs& args, long tile_begin, long tile_end) {
  for (long tile = tile_begin; tile < tile_end; ++tile) {
    for (long row = 0; row < args.rows; row += 128) {
      scalar_tile(args, tile, row, args.rows - row < 128 ? args.rows - row : 128);
    }
  }
}

}  // namespace
}  // namespace twofold
