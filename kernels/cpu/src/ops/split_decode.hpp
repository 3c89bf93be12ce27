// The unsigned integers (levels + 127, or u) of a sub-block, one register of a vector at a time: docs/checkpoint.md has the
// layout. A source is made once a product; what does not change between sub-blocks stays in registers.
#pragma once

#include "../kernels.hpp"
#include "integers.hpp"

namespace twofold {
namespace {

#if defined(__AVX512VBMI__)
// What four 2-bit fields of a byte stand for, field by field. vpermb reads the low six bits of an index, which are the first
// three fields: neither a shift nor a mask is needed for those.
struct PairTables {
  V table[3];
  explicit PairTables(const std::uint8_t (&values)[4]) {
    for (int field = 0; field < 3; ++field) {
      alignas(64) std::uint8_t bytes[64];
      for (int i = 0; i < 64; ++i) bytes[i] = values[(i >> (2 * field)) & 3];
      table[field] = load_v(bytes);
    }
  }
  template <int Field>
  TWOFOLD_MEMBER V look_up(V packed) const {
    return Field == 3 ? _mm512_permutexvar_epi8(right_v<2>(packed), table[2])
                      : _mm512_permutexvar_epi8(packed, table[Field % 3]);
  }
};
#else
// What four 2-bit fields of a byte stand for: a nibble holds two of them, so that both look it up unshifted.
struct PairTables {
  V table[2];
  explicit PairTables(const std::uint8_t (&values)[4]) {
    for (int field = 0; field < 2; ++field) {
      std::uint8_t bytes[16];
      for (int i = 0; i < 16; ++i) bytes[i] = values[(i >> (2 * field)) & 3];
      table[field] = table16_v(bytes);
    }
  }
  template <int Field>
  TWOFOLD_MEMBER V look_up(V packed) const {
    return look_up_v(table[Field % 2], and_v(Field < 2 ? packed : right_v<4>(packed), bytes_v(15)));
  }
};
#endif

// How many registers of products of neighbours, of integers up to `highest` and +-127, add up in 16 bits; 4 is enough.
constexpr int bytes_at_once(int highest) {
  const int n = 32767 / (2 * 127 * highest);
  return n >= 4 ? 4 : n >= 2 ? 2 : n;
}

struct BaseSource {
  static constexpr int kBits = 2, kSmall = 32, kAtOnce = bytes_at_once(kSmall);
  PairTables levels;
  bool small;
  explicit BaseSource(const Codes& codes) : levels(codes.levels), small(true) {
    for (const std::uint8_t level : codes.levels) small = small && level <= kSmall;
  }
  // Whether one plane needs no other way than that of usual levels: kAtOnce holds, or dot products have no limit.
  TWOFOLD_MEMBER bool is_small() const {
#if defined(TWOFOLD_QUADS)
    return true;
#else
    return small;
#endif
  }
  template <int Vector>
  TWOFOLD_MEMBER V bytes(const std::uint8_t* block, long half) const {
    return levels.look_up<Vector>(load_v(block + kWidth * half));
  }
};

struct NibblePair {
  V low, high;
};

template <int Bits>
struct ResidualSource {
  static constexpr int kBits = Bits, kAtOnce = bytes_at_once((1 << Bits) - 1);
  static constexpr std::uint8_t kPairs[4] = {0x00, 0x10, 0x20, 0x30};
  PairTables pairs;
  explicit ResidualSource(const Codes&) : pairs(kPairs) {}
  TWOFOLD_MEMBER bool is_small() const { return true; }
  template <int Vector>
  TWOFOLD_MEMBER V bytes(const std::uint8_t* block, long half) const {
    const std::uint8_t* p = block + kWidth * half;
    const V stored = load_v(p + 64 * (Vector / 2));
    const V low = Vector % 2 == 0 ? stored : right_v<4>(stored);
    if (Bits == 8) {
      const V high = load_v(p + 128 + 64 * (Vector / 2));
      return select_v(bytes_v(15), low, Vector % 2 == 0 ? left_v<4>(high) : high);
    }
    const bool has_pairs = Bits == 6 || Bits == 7;
    V u = has_pairs ? and_or_v(low, bytes_v(15), pairs.look_up<Vector>(load_v(p + 128))) : and_v(low, bytes_v(15));
    if (Bits == 5 || Bits == 7) u = add_bits_v(u, block + 32 * Bits - 32 + 8 * Vector, half, 1 << (Bits - 1));
    return u;
  }
  // Eight bits: the lower and the upper four.
  template <int Vector>
  TWOFOLD_MEMBER NibblePair nibbles(const std::uint8_t* block, long half) const {
    static_assert(Bits == 8, "only eight bits are two nibbles");
    const std::uint8_t* p = block + kWidth * half + 64 * (Vector / 2);
    const V low = load_v(p), high = load_v(p + 128);
    return {and_v(Vector % 2 == 0 ? low : right_v<4>(low), bytes_v(15)),
            and_v(Vector % 2 == 0 ? high : right_v<4>(high), bytes_v(15))};
  }
};

}  // namespace
}  // namespace twofold
