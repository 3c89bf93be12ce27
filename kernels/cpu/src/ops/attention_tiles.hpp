// A tile of positions of one KV head, read in place or decoded once for many queries, and sums over several at once.
#pragma once

#include "kv_blocks.hpp"

namespace twofold {
namespace {

constexpr long kKeys = 8;     // positions scored together
constexpr long kValues = 16;  // positions whose values are added together

// at[t]: the head vector of position t.
struct HalfVectors {
  const std::uint8_t* const* at;
  long dim;
  TWOFOLD_INLINE F16v load(const HalfVectors& self, long t, long i) {
    const std::uint16_t* p = reinterpret_cast<const std::uint16_t*>(self.at[t]) + i;
    return i + 16 <= self.dim ? load_half16(p) : load_half_tail(p, self.dim - i);
  }
};
struct Q8Vectors {
  const std::uint8_t* const* at;
  TWOFOLD_INLINE const std::uint8_t* block(const Q8Vectors& self, long t, long i) { return self.at[t] + i / kKvBlock * 34; }
  TWOFOLD_INLINE F16v load(const Q8Vectors& self, long t, long i) { return q8_floats(block(self, t, i), i / 16 & 1); }
  TWOFOLD_INLINE Words words(const Q8Vectors& self, long t, long i) { return q8_words(block(self, t, i), i / 16 & 1); }
};
struct Q4Vectors {
  const std::uint8_t* const* at;
  TWOFOLD_INLINE const std::uint8_t* block(const Q4Vectors& self, long t, long i) { return self.at[t] + i / kKvBlock * 18; }
  TWOFOLD_INLINE F16v load(const Q4Vectors& self, long t, long i) { return q4_floats(block(self, t, i), i / 16 & 1); }
  TWOFOLD_INLINE Words words(const Q4Vectors& self, long t, long i) { return q4_words(block(self, t, i), i / 16 & 1); }
};
struct DecodedFloats {
  const float* tile;
  long stride;
  TWOFOLD_INLINE F16v load(const DecodedFloats& self, long t, long i) { return load16(self.tile + t * self.stride + i); }
};
struct DecodedWords {
  const std::int16_t* tile;
  long stride;
  TWOFOLD_INLINE Words words(const DecodedWords& self, long t, long i) {
    Words w;
    __builtin_memcpy(&w, self.tile + t * self.stride + i, sizeof w);
    return w;
  }
};

template <class Vectors>
DecodedFloats decode_floats(const Vectors& from, long n, long dim, float* tile) {
  const long stride = (dim + 15) / 16 * 16;
  for (long t = 0; t < n; ++t) {
    for (long i = 0; i < dim; i += 16) store16(Vectors::load(from, t, i), tile + t * stride + i);
  }
  return {tile, stride};
}

template <class Vectors>
DecodedWords decode_words(const Vectors& from, long n, long blocks, float* tile) {
  const long stride = blocks * kKvBlock;
  std::int16_t* words = reinterpret_cast<std::int16_t*>(tile);
  for (long t = 0; t < n; ++t) {
    for (long i = 0; i < stride; i += 16) {
      const Words w = Vectors::words(from, t, i);
      __builtin_memcpy(words + t * stride + i, &w, sizeof w);
    }
  }
  return {words, stride};
}

// The scales of one block of eight vectors.
TWOFOLD_INLINE F8 block_scales(const std::uint8_t* const* at, long offset) {
  std::uint16_t bits[8];
  for (int t = 0; t < 8; ++t) bits[t] = load_u16(at[t] + offset);
#if defined(__F16C__)
  const __m256 wide = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bits)));
  return reinterpret_cast<F8>(wide);
#else
  F8 scales;
  for (int t = 0; t < 8; ++t) scales[t] = half_to_float(bits[t]);
  return scales;
#endif
}

#if defined(__AVX2__)
// One float vector's sixteen lanes to eight: lanes l + lanes l + 8.
TWOFOLD_INLINE __m256 fold8(const F16v& v) {
#if defined(__AVX512F__)
  F8 half[2];
  __builtin_memcpy(half, &v, sizeof v);
  return reinterpret_cast<__m256>(half[0] + half[1]);
#else
  return reinterpret_cast<__m256>(v.part[0] + v.part[1]);
#endif
}

struct AddFloats {
  TWOFOLD_INLINE __m256 add(__m256 a, __m256 b) { return _mm256_add_ps(a, b); }
};
struct AddIntegers {
  TWOFOLD_INLINE __m256 add(__m256 a, __m256 b) {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
  }
};

// The rest of Sum16's tree (l + l+4, l + l+2, 0 + 1) for eight vectors at once, by transposing as it adds: lane t of the
// result is the sum of v[t].
template <class Op>
TWOFOLD_INLINE __m256 tree8(const __m256* v) {
  __m256 four[4];
  for (int t = 0; t < 4; ++t) {
    // by insert, extract and blend: a permutation across the halves is eight operations on a Zen 1 core
    const __m256 low = _mm256_insertf128_ps(v[t], _mm256_castps256_ps128(v[t + 4]), 1);
    const __m256 high = _mm256_blend_ps(_mm256_castps128_ps256(_mm256_extractf128_ps(v[t], 1)), v[t + 4], 0xF0);
    four[t] = Op::add(low, high);
  }
  const __m256 low = Op::add(_mm256_shuffle_ps(four[0], four[1], 0x44), _mm256_shuffle_ps(four[0], four[1], 0xEE));
  const __m256 high = Op::add(_mm256_shuffle_ps(four[2], four[3], 0x44), _mm256_shuffle_ps(four[2], four[3], 0xEE));
  return Op::add(_mm256_shuffle_ps(low, high, 0x88), _mm256_shuffle_ps(low, high, 0xDD));
}
#endif

}  // namespace
}  // namespace twofold
