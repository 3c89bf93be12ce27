// The split product of many rows: a strip of tiles is decoded once a group, into the L1 cache, and every block of rows runs
// over it. A broadcast of activations serves two registers of weights.
#pragma once

#include "split_operands.hpp"

namespace twofold {
namespace {

constexpr long kColumns = 2;  // registers side by side: two tiles, or the halves of one
constexpr long kStripTiles = kColumns / kHalves;
constexpr long kStripLanes = kColumns * kRegisterLanes;
constexpr long kRowsAtOnce = 128;                 // bounds the sums, base and residual, to the L2 cache

struct Strip {
  long first_tile, tiles;  // kStripTiles, or fewer at the end
};

// [sub-block][vector][stored][column], as an operand wants them
struct Decoded {
  alignas(64) std::uint8_t bytes[16 * 8 * kColumns * kWidth];
};

template <class Operand, int Vector, class Source>
TWOFOLD_INLINE void decode_vector(const Source& source, const std::uint8_t* block, long half, std::uint8_t* out) {
  constexpr long kApart = kColumns * kWidth;
  Operand::store(Operand::template decode<Vector>(source, block, half), out + Vector * Operand::kStored * kApart, kApart);
}

template <class Operand, class Source>
__attribute__((noinline)) void decode_tile(const Source& source, const std::uint8_t* packed, long n_blocks, long column,
                                           Decoded& decoded) {
  const Source local = source;
  for (long block = 0; block < n_blocks; ++block, packed += 32 * Source::kBits) {
#pragma GCC unroll 2
    for (long h = 0; h < kHalves; ++h) {
      std::uint8_t* out = decoded.bytes + (4 * Operand::kStored * block * kColumns + column + h) * kWidth;
      decode_vector<Operand, 0>(local, packed, h, out);
      decode_vector<Operand, 1>(local, packed, h, out);
      decode_vector<Operand, 2>(local, packed, h, out);
      decode_vector<Operand, 3>(local, packed, h, out);
    }
  }
}

// Rows whose sums fit the registers beside two weights and a broadcast. Bytes keep two sums a row, of which one is rarely
// needed: it may be in memory.
template <class Operand>
constexpr int block_rows() {
  return kWidth == 64 ? 8 : Operand::kAtOnce == 4 || Operand::kStored == 2 ? 5 : 4;
}

// Lines to fetch while the rows are computed: the codes that the next decoding reads.
struct Ahead {
  const std::uint8_t* tile[kStripTiles];
  long lines_a_block;
};

TWOFOLD_INLINE void prefetch(const Ahead& ahead, long block) {
  for (long i = 0; i < kStripTiles; ++i) {
    for (long line = 0; line < ahead.lines_a_block; ++line) {
      __builtin_prefetch(ahead.tile[i] + 64 * (block * ahead.lines_a_block + line), 0, 2);
    }
  }
}

// acc[row][kStripLanes] += fp32(n) * unit * scale for `Rows` rows.
template <class Operand, int Rows>
__attribute__((noinline)) void strip_rows(const Decoded& decoded, long n_blocks, const GroupRows& x, int offset,
                                          const Register (&scale)[kColumns], const Ahead& ahead, float* acc) {
  V n[Rows][kColumns];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
    for (long c = 0; c < kColumns; ++c) n[r][c] = ints_v(-offset * x.sums[r]);
  }
  const std::uint8_t* weights = decoded.bytes;
  const std::uint8_t* activations = Operand::activations(x);
  const long stride = 2 * x.stride;  // t, or two planes
  for (long block = 0; block < n_blocks; ++block) {
    prefetch(ahead, block);
    for (int step = 0; step < 4 * Operand::kStored; step += Operand::kAtOnce) {
      V part[Rows][kColumns];
#pragma GCC unroll 4
      for (int turn = 0; turn < Operand::kAtOnce; ++turn, weights += kColumns * kWidth, activations += 4) {
        const V first = load_v(weights), second = load_v(weights + kWidth);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
          const V quad = broadcast_v(activations + r * stride);
          Operand::add_stored(n[r][0], part[r][0], first, quad, turn);
          Operand::add_stored(n[r][1], part[r][1], second, quad, turn);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
    for (long c = 0; c < kColumns; ++c) {
      float* target = acc + r * kStripLanes + c * kRegisterLanes;
      Register sum;
      __builtin_memcpy(&sum, target, sizeof sum);
      sum = sum + floats_v(n[r][c]) * x.unit[r] * scale[c];
      __builtin_memcpy(target, &sum, sizeof sum);
    }
  }
}

template <class Operand>
TWOFOLD_INLINE void strip_block(int n_rows, const Decoded& decoded, long n_blocks, const GroupRows& x, int offset,
                                const Register (&scale)[kColumns], const Ahead& ahead, float* acc) {
  switch (n_rows) {
    case 1: return strip_rows<Operand, 1>(decoded, n_blocks, x, offset, scale, ahead, acc);
    case 2: return strip_rows<Operand, 2>(decoded, n_blocks, x, offset, scale, ahead, acc);
    case 3: return strip_rows<Operand, 3>(decoded, n_blocks, x, offset, scale, ahead, acc);
    case 4: return strip_rows<Operand, 4>(decoded, n_blocks, x, offset, scale, ahead, acc);
    case 5: return strip_rows<Operand, 5>(decoded, n_blocks, x, offset, scale, ahead, acc);
#if defined(__AVX512BW__)
    case 6: return strip_rows<Operand, 6>(decoded, n_blocks, x, offset, scale, ahead, acc);
    case 7: return strip_rows<Operand, 7>(decoded, n_blocks, x, offset, scale, ahead, acc);
    case 8: return strip_rows<Operand, 8>(decoded, n_blocks, x, offset, scale, ahead, acc);
#endif
  }
}

// One half of the weights, one group, n_rows rows; the group that is decoded after this one is prefetched.
template <class Operand, class Source>
TWOFOLD_INLINE void strip_group(const Source& source, const Codes& codes, const Activations& activations,
                                const ProductArgs& args, const Strip& strip, long group, long row, long n_rows, float* acc) {
  Decoded decoded;
  Register scale[kColumns];
  Ahead ahead{};
  const bool last = group + 1 == args.groups;
  const TileGroup first = tile_group(args, strip.first_tile, group);
  for (long i = 0; i < kStripTiles; ++i) {
    const long tile = strip.first_tile + (i < strip.tiles ? i : 0);
    const TileGroup at = tile_group(args, tile, group);
    const std::uint8_t* packed = codes.codes + at.first_block * 32 * Source::kBits;
    decode_tile<Operand>(source, packed, at.n_blocks, i * kHalves, decoded);
    const F16v scales = load_half16(codes.scales + at.scales);
    for (long h = 0; h < kHalves; ++h) scale[i * kHalves + h] = scales.part[h];
    const long ahead_blocks = last ? (kStripTiles * args.blocks - first.first_block % args.blocks) : at.n_blocks;
    ahead.tile[i] = packed + ahead_blocks * 32 * Source::kBits;
  }
  ahead.lines_a_block = (Source::kBits + 1) / 2;
  while (n_rows > 0) {
    constexpr long kBlockRows = block_rows<Operand>();
    const long blocks = (n_rows + kBlockRows - 1) / kBlockRows, now = (n_rows + blocks - 1) / blocks;
    const GroupRows x = group_rows(activations, args, group, row);
    strip_block<Operand>(static_cast<int>(now), decoded, first.n_blocks, x, codes.offset, scale, ahead, acc);
    row += now, n_rows -= now, acc += now * kStripLanes;
    ahead.lines_a_block = 0;  // once is enough
  }
}

template <class Source>
TWOFOLD_INLINE void strip_half(const Source& source, const Codes& codes, const Activations& activations,
                               const ProductArgs& args, const Strip& strip, long group, long row, long n_rows, float* acc) {
#if defined(TWOFOLD_QUADS)
  if (activations.planes == 1) {
    return strip_group<Quads<1>>(source, codes, activations, args, strip, group, row, n_rows, acc);
  }
#else
  if constexpr (Source::kAtOnce > 0) {
    if (activations.planes == 1 && source.is_small()) {
      return strip_group<Bytes<Source::kAtOnce>>(source, codes, activations, args, strip, group, row, n_rows, acc);
    }
  }
#endif
  strip_group<Pairs>(source, codes, activations, args, strip, group, row, n_rows, acc);
}

template <class Residual>
void strip_rows_at_once(const BaseSource& base, const Residual& residual, const ProductArgs& args, const Strip& strip, long row,
                        long n_rows) {
  alignas(64) float y_b[kRowsAtOnce * kStripLanes], y_r[kRowsAtOnce * kStripLanes];
  const unsigned long bytes = static_cast<unsigned long>(n_rows * kStripLanes) * sizeof(float);
  __builtin_memset(y_b, 0, bytes);
  if (args.use_residual) __builtin_memset(y_r, 0, bytes);
  for (long group = 0; group < args.groups; ++group) {
    strip_half(base, args.base, args.x_base, args, strip, group, row, n_rows, y_b);
    if (args.use_residual) strip_half(residual, args.residual, args.x_residual, args, strip, group, row, n_rows, y_r);
  }
  for (long i = 0; i < strip.tiles; ++i) {
    finish_tile(args, strip.first_tile + i, row, n_rows, y_b + i * kTileRows, y_r + i * kTileRows, kStripLanes);
  }
}

template <class Residual>
void strip_tiles(const BaseSource& base, const Residual& residual, const ProductArgs& args, long tile_begin, long tile_end) {
  for (long tile = tile_begin; tile < tile_end; tile += kStripTiles) {
    const Strip strip{tile, tile_end - tile < kStripTiles ? tile_end - tile : kStripTiles};
    for (long row = 0; row < args.rows; row += kRowsAtOnce) {
      strip_rows_at_once(base, residual, args, strip, row, args.rows - row < kRowsAtOnce ? args.rows - row : kRowsAtOnce);
    }
  }
}

}  // namespace
}  // namespace twofold
