// The uniform number of a (seed, position); kernels/naive/uniform.py defines it, by numpy's generator. Making one of those for a
// single number takes as long as the choice itself.
#pragma once

#include <cstdint>

namespace twofold {

// Philox4x64-10 (Salmon et al., SC 2011), keyed by (seed, position): the first word of block 1, its upper 53 bits in [0, 1).
inline double uniform(std::uint64_t seed, std::uint64_t position) {
  __extension__ typedef unsigned __int128 Wide;
  constexpr std::uint64_t kFactors[2] = {0xD2E7470EE14C6C93u, 0xCA5A826395121157u};
  constexpr std::uint64_t kWeyl[2] = {0x9E3779B97F4A7C15u, 0xBB67AE8584CAA73Bu};
  std::uint64_t key[2] = {seed, position}, word[4] = {1, 0, 0, 0};
  for (int round = 0; round < 10; ++round) {
    const Wide first = Wide{kFactors[0]} * word[0], second = Wide{kFactors[1]} * word[2];
    const std::uint64_t next[4] = {static_cast<std::uint64_t>(second >> 64) ^ word[1] ^ key[0],
                                   static_cast<std::uint64_t>(second),
                                   static_cast<std::uint64_t>(first >> 64) ^ word[3] ^ key[1],
                                   static_cast<std::uint64_t>(first)};
    for (int i = 0; i < 4; ++i) word[i] = next[i];
    key[0] += kWeyl[0], key[1] += kWeyl[1];
  }
  return static_cast<double>(word[0] >> 11) * 0x1p-53;
}

}  // namespace twofold
