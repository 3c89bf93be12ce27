// One register of integers for AVX2 and AVX-512, by thin wrappers, so that a kernel is written once for both.
#pragma once

#include <immintrin.h>

#include "vectors.hpp"

namespace twofold {
namespace {

// Holds an integer where it is. GCC puts off integer additions to the end of an unrolled loop and spills what they wait for,
// and copies the sums of dot products to and fro.
#if !defined(TWOFOLD_HOLD)
#define TWOFOLD_HOLD(v) __asm__("" : "+v"(v))
#endif

#if defined(__AVX512BW__)
typedef __m512i V;
TWOFOLD_INLINE V load_v(const void* p) { return _mm512_loadu_si512(p); }
TWOFOLD_INLINE void store_v(void* p, V v) { _mm512_storeu_si512(p, v); }
TWOFOLD_INLINE V bytes_v(int x) { return _mm512_set1_epi8(static_cast<char>(x)); }
TWOFOLD_INLINE V words_v(int x) { return _mm512_set1_epi16(static_cast<short>(x)); }
TWOFOLD_INLINE V ints_v(std::int32_t x) { return _mm512_set1_epi32(x); }
TWOFOLD_INLINE V and_v(V a, V b) { return _mm512_and_si512(a, b); }
template <int N>
TWOFOLD_INLINE V right_v(V a) { return _mm512_srli_epi16(a, N); }
template <int N>
TWOFOLD_INLINE V left_v(V a) { return _mm512_slli_epi16(a, N); }
template <int N>
TWOFOLD_INLINE V left_int_v(V a) { return _mm512_slli_epi32(a, N); }
TWOFOLD_INLINE V add_v(V a, V b) { return _mm512_add_epi32(a, b); }
TWOFOLD_INLINE V subtract_v(V a, V b) { return _mm512_sub_epi32(a, b); }
// table[index & 15] inside each 16 bytes; bit 7 of an index must be clear.
TWOFOLD_INLINE V look_up_v(V table, V index) { return _mm512_shuffle_epi8(table, index); }
TWOFOLD_INLINE V table16_v(const std::uint8_t* table) {
  __m128i lane;
  __builtin_memcpy(&lane, table, 16);
  return _mm512_broadcast_i32x4(lane);
}
TWOFOLD_INLINE V and_or_v(V a, V b, V c) { return _mm512_ternarylogic_epi32(a, b, c, 0xEA); }     // (a & b) | c
TWOFOLD_INLINE V select_v(V mask, V a, V b) { return _mm512_ternarylogic_epi32(mask, a, b, 0xCA); }  // mask ? a : b
// sums + pairs of 16-bit products, and sums + quads of unsigned times signed bytes.
TWOFOLD_INLINE void add_pairs_v(V& sum, V a, V b) {
  sum = _mm512_dpwssd_epi32(sum, a, b);
  TWOFOLD_HOLD(sum);
}
TWOFOLD_INLINE void add_quads_v(V& sum, V unsigned_bytes, V bytes) {
  sum = _mm512_dpbusd_epi32(sum, unsigned_bytes, bytes);
  TWOFOLD_HOLD(sum);
}
// Adds `value` to byte j where bit j of the 64-bit word is set.
TWOFOLD_INLINE V add_bits_v(V bytes, const std::uint8_t* word, long, int value) {
  std::uint64_t mask;
  __builtin_memcpy(&mask, word, 8);
  return _mm512_mask_add_epi8(bytes, mask, bytes, _mm512_set1_epi8(static_cast<char>(value)));
}
#else
typedef __m256i V;
TWOFOLD_INLINE V load_v(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
TWOFOLD_INLINE void store_v(void* p, V v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
TWOFOLD_INLINE V bytes_v(int x) { return _mm256_set1_epi8(static_cast<char>(x)); }
TWOFOLD_INLINE V words_v(int x) { return _mm256_set1_epi16(static_cast<short>(x)); }
TWOFOLD_INLINE V ints_v(std::int32_t x) { return _mm256_set1_epi32(x); }
TWOFOLD_INLINE V and_v(V a, V b) { return _mm256_and_si256(a, b); }
template <int N>
TWOFOLD_INLINE V right_v(V a) { return _mm256_srli_epi16(a, N); }
template <int N>
TWOFOLD_INLINE V left_v(V a) { return _mm256_slli_epi16(a, N); }
template <int N>
TWOFOLD_INLINE V left_int_v(V a) { return _mm256_slli_epi32(a, N); }
TWOFOLD_INLINE V add_v(V a, V b) { return _mm256_add_epi32(a, b); }
TWOFOLD_INLINE V subtract_v(V a, V b) { return _mm256_sub_epi32(a, b); }
// table[index & 15] inside each 16 bytes; bit 7 of an index must be clear.
TWOFOLD_INLINE V look_up_v(V table, V index) { return _mm256_shuffle_epi8(table, index); }
TWOFOLD_INLINE V table16_v(const std::uint8_t* table) {
  __m128i lane;
  __builtin_memcpy(&lane, table, 16);
  return _mm256_broadcastsi128_si256(lane);
}
TWOFOLD_INLINE V and_or_v(V a, V b, V c) { return _mm256_or_si256(_mm256_and_si256(a, b), c); }
TWOFOLD_INLINE V select_v(V mask, V a, V b) {
  return _mm256_or_si256(_mm256_and_si256(mask, a), _mm256_andnot_si256(mask, b));
}
#if defined(__AVXVNNI__)
TWOFOLD_INLINE void add_pairs_v(V& sum, V a, V b) {
  sum = _mm256_dpwssd_avx_epi32(sum, a, b);
  TWOFOLD_HOLD(sum);
}
TWOFOLD_INLINE void add_quads_v(V& sum, V unsigned_bytes, V bytes) {
  sum = _mm256_dpbusd_avx_epi32(sum, unsigned_bytes, bytes);
  TWOFOLD_HOLD(sum);
}
#else
TWOFOLD_INLINE void add_pairs_v(V& sum, V a, V b) {
  sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
  TWOFOLD_HOLD(sum);
}
// Unsigned times signed bytes, two neighbours added, in 16 bits; the caller keeps them inside int16.
TWOFOLD_INLINE V multiply_bytes_v(V unsigned_bytes, V bytes) { return _mm256_maddubs_epi16(unsigned_bytes, bytes); }
TWOFOLD_INLINE V add_words_v(V a, V b) { return _mm256_add_epi16(a, b); }
#endif
// Adds `value`, a single bit that is clear there, to byte j of this half where bit j of the half's 32-bit word is set.
TWOFOLD_INLINE V add_bits_v(V bytes, const std::uint8_t* word, long half, int value) {
  std::int32_t bits;
  __builtin_memcpy(&bits, word + 4 * half, 4);
  const V spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3,
                                    3, 3);
  const V chosen = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201ULL));
  const V found = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), spread), chosen);
  return and_or_v(_mm256_cmpeq_epi8(found, chosen), bytes_v(value), bytes);
}
#endif

#if defined(__AVX512BW__) || defined(__AVXVNNI__)
#define TWOFOLD_QUADS 1  // four bytes of a lane at once: the planes apart are cheaper than t in 16 bits
#endif

TWOFOLD_INLINE V zero_v() { return V{}; }
// The four bytes at p in every lane.
TWOFOLD_INLINE V broadcast_v(const void* p) {
  std::int32_t four;
  __builtin_memcpy(&four, p, 4);
  return ints_v(four);
}
TWOFOLD_INLINE V even_v(V bytes) { return and_v(bytes, words_v(0x00FF)); }
TWOFOLD_INLINE V odd_v(V bytes) { return right_v<8>(bytes); }

typedef std::int32_t Int32 __attribute__((vector_size(sizeof(V))));
TWOFOLD_INLINE Register floats_v(V v) { return __builtin_convertvector((Int32)v, Register); }

constexpr long kWidth = sizeof(V);
constexpr long kHalves = 64 / kWidth;  // registers that a 64-byte vector of a sub-block takes

}  // namespace
}  // namespace twofold
