// One (tile, group) against the rows in plain C++: the generic tier.
#pragma once

#include "../kernels.hpp"
#include "vectors.hpp"

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

// acc[row][16] += fp32(n) * scale, n the exact sum over the group's blocks, for rows of t that are t_stride apart.
inline void group_sums(const Codes& codes, const std::uint8_t* packed, long n_blocks, const std::int16_t* t, long t_stride,
                       long n_rows, const std::int32_t* sums, const F16v& scale, float* acc) {
  std::uint8_t decoded[16][256];
  float scales[16];
  store16(scale, scales);
  for (long block = 0; block < n_blocks; ++block) decode_block(codes, packed + block * 32 * codes.bits, decoded[block]);
  for (long row = 0; row < n_rows; ++row, t += t_stride, acc += kTileRows) {
    std::int32_t n[16] = {};
    for (long block = 0; block < n_blocks; ++block) {
      for (int v = 0; v < 4; ++v) {
        const std::uint8_t* u = decoded[block] + 64 * v;
        const std::int16_t* quad = t + 16 * block + 4 * v;
        const std::int32_t t0 = quad[0], t2 = quad[1], t1 = quad[2], t3 = quad[3];
        for (int i = 0; i < 16; ++i) n[i] += u[4 * i] * t0 + u[4 * i + 1] * t1 + u[4 * i + 2] * t2 + u[4 * i + 3] * t3;
      }
    }
    for (int i = 0; i < 16; ++i) acc[i] += static_cast<float>(n[i] - codes.offset * sums[row]) * scales[i];
  }
}

}  // namespace
}  // namespace twofold
