// One (tile, group) against the rows with AVX2 or AVX-512.
//
// Codes stay unsigned (levels + 127, or u) and widen to 16 bits as the even and the odd bytes of their vectors, so that one
// 16 x 16 -> 32 bit multiply-add with t = 254 * q0 + q1 does both planes of two inputs of a row, and lands in that row's lane.
// The excess, offset * sum(t), is subtracted once a group. |u| <= 254 and |t| <= 32385: 256 inputs stay inside int32.
#pragma once

#include <immintrin.h>

#include "../kernels.hpp"
#include "vectors.hpp"

namespace twofold {
namespace {

#if defined(__AVX512BW__)
typedef __m512i V;
TWOFOLD_INLINE V load_v(const void* p) { return _mm512_loadu_si512(p); }
TWOFOLD_INLINE void store_v(void* p, V v) { _mm512_storeu_si512(p, v); }
TWOFOLD_INLINE V zero_v() { return _mm512_setzero_si512(); }
TWOFOLD_INLINE V bytes_v(int x) { return _mm512_set1_epi8(static_cast<char>(x)); }
TWOFOLD_INLINE V and_v(V a, V b) { return _mm512_and_si512(a, b); }
TWOFOLD_INLINE V or_v(V a, V b) { return _mm512_or_si512(a, b); }
template <int N>
TWOFOLD_INLINE V right_v(V a) { return _mm512_srli_epi16(a, N); }
template <int N>
TWOFOLD_INLINE V left_v(V a) { return _mm512_slli_epi16(a, N); }
TWOFOLD_INLINE V even_v(V a) { return _mm512_and_si512(a, _mm512_set1_epi16(0x00FF)); }
TWOFOLD_INLINE V look_up_v(V table, V index) { return _mm512_shuffle_epi8(table, index); }
TWOFOLD_INLINE V table_v(const std::uint8_t* levels) {
  std::int32_t four;
  __builtin_memcpy(&four, levels, 4);
  return _mm512_set1_epi32(four);  // shuffle indices are 0..3 in each 128-bit lane
}
TWOFOLD_INLINE V broadcast_v(const std::int16_t* pair) {
  std::int32_t two;
  __builtin_memcpy(&two, pair, 4);
  return _mm512_set1_epi32(two);
}
TWOFOLD_INLINE V multiply_add_v(V sum, V a, V b) { return _mm512_dpwssd_epi32(sum, a, b); }
TWOFOLD_INLINE V subtract_v(V a, std::int32_t b) { return _mm512_sub_epi32(a, _mm512_set1_epi32(b)); }
// Byte j is `value` where bit j of the 64-bit word is set.
TWOFOLD_INLINE V expand_bits_v(const std::uint8_t* word, long, int value) {
  std::uint64_t mask;
  __builtin_memcpy(&mask, word, 8);
  return _mm512_maskz_set1_epi8(mask, static_cast<char>(value));
}
#else
typedef __m256i V;
TWOFOLD_INLINE V load_v(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
TWOFOLD_INLINE void store_v(void* p, V v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
TWOFOLD_INLINE V zero_v() { return _mm256_setzero_si256(); }
TWOFOLD_INLINE V bytes_v(int x) { return _mm256_set1_epi8(static_cast<char>(x)); }
TWOFOLD_INLINE V and_v(V a, V b) { return _mm256_and_si256(a, b); }
TWOFOLD_INLINE V or_v(V a, V b) { return _mm256_or_si256(a, b); }
template <int N>
TWOFOLD_INLINE V right_v(V a) { return _mm256_srli_epi16(a, N); }
template <int N>
TWOFOLD_INLINE V left_v(V a) { return _mm256_slli_epi16(a, N); }
TWOFOLD_INLINE V even_v(V a) { return _mm256_and_si256(a, _mm256_set1_epi16(0x00FF)); }
TWOFOLD_INLINE V look_up_v(V table, V index) { return _mm256_shuffle_epi8(table, index); }
TWOFOLD_INLINE V table_v(const std::uint8_t* levels) {
  std::int32_t four;
  __builtin_memcpy(&four, levels, 4);
  return _mm256_set1_epi32(four);  // shuffle indices are 0..3 in each 128-bit lane
}
TWOFOLD_INLINE V broadcast_v(const std::int16_t* pair) {
  std::int32_t two;
  __builtin_memcpy(&two, pair, 4);
  return _mm256_set1_epi32(two);
}
TWOFOLD_INLINE V multiply_add_v(V sum, V a, V b) { return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)); }
TWOFOLD_INLINE V subtract_v(V a, std::int32_t b) { return _mm256_sub_epi32(a, _mm256_set1_epi32(b)); }
// Byte j of this half is `value` where bit j of the half's 32-bit word is set.
TWOFOLD_INLINE V expand_bits_v(const std::uint8_t* word, long half, int value) {
  std::int32_t bits;
  __builtin_memcpy(&bits, word + 4 * half, 4);
  const V spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3,
                                    3, 3);
  const V select = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201ULL));
  const V chosen = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), spread), select);
  return _mm256_and_si256(_mm256_cmpeq_epi8(chosen, select), bytes_v(value));
}
#endif

typedef std::int32_t Int32 __attribute__((vector_size(sizeof(V))));

constexpr long kWidth = sizeof(V);
constexpr long kHalves = 64 / kWidth;  // registers a 64-byte vector takes

// Where the 16-bit operands of a vector's half come from: decoded on the way, or decoded before. One vector is asked for at
// a time, so that few registers are taken while the rows' sums occupy the others.
struct BaseSource {
  const std::uint8_t* packed;
  V table;
  BaseSource(const Codes& codes, const std::uint8_t* p) : packed(p), table(table_v(codes.levels)) {}
  template <int Vector>
  __attribute__((always_inline)) void operand(long block, long half, V& even, V& odd) const {
    const V x = load_v(packed + 64 * block + kWidth * half);
    const V levels = look_up_v(table, and_v(Vector == 0 ? x : right_v<2 * Vector>(x), bytes_v(3)));
    even = even_v(levels), odd = right_v<8>(levels);
  }
};

template <int Bits>
struct ResidualSource {
  const std::uint8_t* packed;
  ResidualSource(const Codes&, const std::uint8_t* p) : packed(p) {}
  template <int Vector>
  __attribute__((always_inline)) void operand(long block, long half, V& even, V& odd) const {
    const std::uint8_t *start = packed + 32 * Bits * block, *p = start + kWidth * half;
    const V low = load_v(p + 64 * (Vector / 2));
    V u = and_v(Vector % 2 == 0 ? low : right_v<4>(low), bytes_v(15));
    if (Bits == 6 || Bits == 7) {
      const V pair = load_v(p + 128);
      const V moved = Vector == 0 ? left_v<4>(pair) : Vector == 1 ? left_v<2>(pair) : Vector == 2 ? pair : right_v<2>(pair);
      u = or_v(u, and_v(moved, bytes_v(0x30)));
    }
    if (Bits == 5 || Bits == 7) u = or_v(u, expand_bits_v(start + 32 * Bits - 32 + 8 * Vector, half, 1 << (Bits - 1)));
    if (Bits == 8) {
      const V high = load_v(p + 128 + 64 * (Vector / 2));
      u = or_v(u, and_v(Vector % 2 == 0 ? left_v<4>(high) : high, bytes_v(0xF0)));
    }
    even = even_v(u), odd = right_v<8>(u);
  }
};

struct DecodedSource {
  const std::uint8_t* decoded;  // [block][half][vector][even, odd][kWidth]
  template <int Vector>
  __attribute__((always_inline)) void operand(long block, long half, V& even, V& odd) const {
    const std::uint8_t* p = decoded + ((block * kHalves + half) * 4 + Vector) * 2 * kWidth;
    even = load_v(p), odd = load_v(p + kWidth);
  }
};

template <int Vector, int Rows, class Source>
TWOFOLD_INLINE void add_vector(const Source& source, long block, long half, const std::int16_t* t, long t_stride,
                               V (&n)[Rows][kHalves]) {
  V even, odd;
  source.template operand<Vector>(block, half, even, odd);
  for (int r = 0; r < Rows; ++r) {
    const std::int16_t* quad = t + r * t_stride + 16 * block + 4 * Vector;
    n[r][half] = multiply_add_v(n[r][half], even, broadcast_v(quad));
    n[r][half] = multiply_add_v(n[r][half], odd, broadcast_v(quad + 2));
  }
}

// acc[row][16] += fp32(n - offset * sum) * scale for `Rows` rows.
template <int Rows, class Source>
TWOFOLD_INLINE void rows_sums(const Source& source, long n_blocks, const std::int16_t* t, long t_stride, int offset,
                              const std::int32_t* sums, const F16v& scale, float* acc) {
  V n[Rows][kHalves];
  for (int r = 0; r < Rows; ++r) {
    for (long h = 0; h < kHalves; ++h) n[r][h] = zero_v();
  }
  for (long block = 0; block < n_blocks; ++block) {
    for (long h = 0; h < kHalves; ++h) {
      add_vector<0, Rows>(source, block, h, t, t_stride, n);
      add_vector<1, Rows>(source, block, h, t, t_stride, n);
      add_vector<2, Rows>(source, block, h, t, t_stride, n);
      add_vector<3, Rows>(source, block, h, t, t_stride, n);
    }
  }
  for (int r = 0; r < Rows; ++r) {
    F16v total;
    for (long h = 0; h < kHalves; ++h) {
      const V exact = subtract_v(n[r][h], offset * sums[r]);
      total.part[h] = __builtin_convertvector((Int32)exact, Register);
    }
    const F16v sum = load16(acc + r * kTileRows) + total * scale;
    store16(sum, acc + r * kTileRows);
  }
}

template <class Source>
TWOFOLD_INLINE void all_rows(const Source& source, const Codes& codes, long n_blocks, const std::int16_t* t, long t_stride,
                             long n_rows, const std::int32_t* sums, const F16v& scale, float* acc) {
  for (; n_rows >= 4; n_rows -= 4, t += 4 * t_stride, sums += 4, acc += 4 * kTileRows) {
    rows_sums<4>(source, n_blocks, t, t_stride, codes.offset, sums, scale, acc);
  }
  if (n_rows == 3) rows_sums<3>(source, n_blocks, t, t_stride, codes.offset, sums, scale, acc);
  if (n_rows == 2) rows_sums<2>(source, n_blocks, t, t_stride, codes.offset, sums, scale, acc);
  if (n_rows == 1) rows_sums<1>(source, n_blocks, t, t_stride, codes.offset, sums, scale, acc);
}

template <int Vector, class Source>
TWOFOLD_INLINE void store_operand(const Source& source, long block, long half, std::uint8_t* p) {
  V even, odd;
  source.template operand<Vector>(block, half, even, odd);
  store_v(p + 2 * Vector * kWidth, even), store_v(p + (2 * Vector + 1) * kWidth, odd);
}

// Up to four rows decode on the way; more share one decoding in the L1 cache.
template <class Source>
__attribute__((noinline)) void source_sums(const Codes& codes, const std::uint8_t* packed, long n_blocks,
                                           const std::int16_t* t, long t_stride, long n_rows, const std::int32_t* sums,
                                           const F16v& scale, float* acc) {
  const Source source(codes, packed);
  if (n_rows <= 4) {
    all_rows(source, codes, n_blocks, t, t_stride, n_rows, sums, scale, acc);
    return;
  }
  alignas(64) std::uint8_t decoded[16 * 512];
  for (long block = 0; block < n_blocks; ++block) {
    for (long h = 0; h < kHalves; ++h) {
      std::uint8_t* p = decoded + (block * kHalves + h) * 8 * kWidth;
      store_operand<0>(source, block, h, p);
      store_operand<1>(source, block, h, p);
      store_operand<2>(source, block, h, p);
      store_operand<3>(source, block, h, p);
    }
  }
  all_rows(DecodedSource{decoded}, codes, n_blocks, t, t_stride, n_rows, sums, scale, acc);
}

inline void group_sums(const Codes& codes, const std::uint8_t* packed, long n_blocks, const std::int16_t* t, long t_stride,
                       long n_rows, const std::int32_t* sums, const F16v& scale, float* acc) {
  const auto run = [&](auto chosen) { chosen(codes, packed, n_blocks, t, t_stride, n_rows, sums, scale, acc); };
  switch (codes.bits) {
    case 2: return run(source_sums<BaseSource>);
    case 4: return run(source_sums<ResidualSource<4>>);
    case 5: return run(source_sums<ResidualSource<5>>);
    case 6: return run(source_sums<ResidualSource<6>>);
    case 7: return run(source_sums<ResidualSource<7>>);
    default: return run(source_sums<ResidualSource<8>>);
  }
}

}  // namespace
}  // namespace twofold
