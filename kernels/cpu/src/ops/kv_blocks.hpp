// Head vectors of the KV cache: fp16, or rotated and in blocks of 32 under an fp16 scale (ggml's q8_0 and q4_0).
#pragma once

#include "../attention_args.hpp"
#include "half.hpp"
#include "rotate.hpp"
#include "vectors.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace twofold {
namespace {

constexpr std::uint16_t kHalfNan = 0x7E00;

TWOFOLD_INLINE std::uint16_t load_u16(const std::uint8_t* p) {
  std::uint16_t bits;
  __builtin_memcpy(&bits, p, sizeof bits);
  return bits;
}

void write_halves(const float* x, long n, std::uint8_t* out) {
  long i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8) {
    const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * i), half);
  }
#endif
  for (; i < n; ++i) {
    const std::uint16_t bits = float_to_half(x[i]);
    __builtin_memcpy(out + 2 * i, &bits, sizeof bits);
  }
}

TWOFOLD_INLINE bool all_finite(const float* x) {
  int finite = 1;
  for (long i = 0; i < kKvBlock; ++i) finite &= __builtin_fabsf(x[i]) <= 3.40282347e38f;  // false for NaN
  return finite != 0;
}

// Stores d; returns 1 / d, or 0 where codes are zero: a d that is no normal number, or a block that cannot be kept (NaN).
TWOFOLD_INLINE float store_scale(float d, bool finite, std::uint8_t* out) {
  std::uint16_t half = float_to_half(d);
  const bool kept = finite && (half & 0x7C00) != 0x7C00;
  if (!kept) half = kHalfNan;
  __builtin_memcpy(out, &half, sizeof half);
  return kept && __builtin_fabsf(d) >= 0x1p-126f ? 1.0f / d : 0.0f;
}

void write_q8_0(const float* x, std::uint8_t* out) {
  float highest = 0.0f;
  for (long i = 0; i < kKvBlock; ++i) {
    const float size = __builtin_fabsf(x[i]);
    highest = size > highest ? size : highest;
  }
  const float inverse = store_scale(highest / 127.0f, all_finite(x), out);
  for (long i = 0; i < kKvBlock; ++i) {
    std::int32_t code = 0;
    if (inverse != 0.0f) {  // else x may be what does not fit an integer
      const float scaled = x[i] * inverse, size = __builtin_fabsf(scaled);
      const std::int32_t whole = static_cast<std::int32_t>(size);
      const std::int32_t rounded = whole + (size - static_cast<float>(whole) >= 0.5f ? 1 : 0);
      code = scaled < 0.0f ? -rounded : rounded;
    }
    out[2 + i] = static_cast<std::uint8_t>(code);
  }
}

TWOFOLD_INLINE int q4_code(float x, float inverse) {
  if (inverse == 0.0f) return 8;
  const int code = static_cast<int>(x * inverse + 8.5f);
  return code < 15 ? code : 15;
}

void write_q4_0(const float* x, std::uint8_t* out) {
  float largest = x[0];
  for (long i = 1; i < kKvBlock; ++i) largest = __builtin_fabsf(x[i]) > __builtin_fabsf(largest) ? x[i] : largest;
  const float inverse = store_scale(largest / -8.0f, all_finite(x), out);
  for (long i = 0; i < kKvBlock / 2; ++i) {
    out[2 + i] = static_cast<std::uint8_t>(q4_code(x[i], inverse) | q4_code(x[i + kKvBlock / 2], inverse) << 4);
  }
}

// Hadamard blocks no wider than a block of the cache: half the KL of none, and less than wider ones (docs/log.md).
TWOFOLD_INLINE long rotated_width(long dim) {
  const long width = dim & -dim;
  return width < kKvBlock ? width : kKvBlock;
}

// Rotated and padded with zeros to whole blocks.
void rotate_head(const float* x, long dim, float* out) {
  __builtin_memcpy(out, x, static_cast<unsigned long>(dim) * sizeof(float));
  hadamard_blocks(out, dim, rotated_width(dim));
  for (long i = dim; i < kv_blocks(dim) * kKvBlock; ++i) out[i] = 0.0f;
}

void kv_write(const float* x, long dim, KvType type, std::uint8_t* out, float* scratch) {
  if (type == KvType::f16) return write_halves(x, dim, out);
  rotate_head(x, dim, scratch);
  for (long block = 0; block < kv_blocks(dim); ++block, out += kv_block_bytes(type)) {
    type == KvType::q8_0 ? write_q8_0(scratch + block * kKvBlock, out) : write_q4_0(scratch + block * kKvBlock, out);
  }
}

typedef std::int16_t Words __attribute__((vector_size(32)));

// Sixteen codes as int16: value i of a block for i = 0..15 (half 0) or 16..31 (half 1); p is the block.
TWOFOLD_INLINE Words q8_words(const std::uint8_t* p, long half) {
  const std::uint8_t* from = p + 2 + 16 * half;
  Words words;
#if defined(__AVX2__)
  const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  __builtin_memcpy(&words, &wide, sizeof words);
#else
  for (int i = 0; i < 16; ++i) words[i] = static_cast<std::int8_t>(from[i]);
#endif
  return words;
}

TWOFOLD_INLINE Words q4_words(const std::uint8_t* p, long half) {
  Words words;
#if defined(__AVX2__)
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 2));
  const __m128i nibbles = _mm_and_si128(half == 0 ? bytes : _mm_srli_epi16(bytes, 4), _mm_set1_epi8(15));
  const __m256i wide = _mm256_sub_epi16(_mm256_cvtepu8_epi16(nibbles), _mm256_set1_epi16(8));
  __builtin_memcpy(&words, &wide, sizeof words);
#else
  for (int i = 0; i < 16; ++i) words[i] = static_cast<std::int16_t>((p[2 + i] >> (half * 4) & 15) - 8);
#endif
  return words;
}

#if defined(__AVX2__)
TWOFOLD_INLINE F16v bytes_to_floats(__m128i bytes) {
  F16v v;
#if defined(__AVX512F__)
  v.part[0] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
#else
  v.part[0] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  v.part[1] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)));
#endif
  return v;
}
#endif

TWOFOLD_INLINE F16v q8_floats(const std::uint8_t* p, long half) {
#if defined(__AVX2__)
  return bytes_to_floats(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 2 + 16 * half)));
#else
  float lanes[16];
  for (int i = 0; i < 16; ++i) lanes[i] = static_cast<float>(static_cast<std::int8_t>(p[2 + 16 * half + i]));
  return load16(lanes);
#endif
}

TWOFOLD_INLINE F16v q4_floats(const std::uint8_t* p, long half) {
#if defined(__AVX2__)
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 2));
  const __m128i nibbles = _mm_and_si128(half == 0 ? bytes : _mm_srli_epi16(bytes, 4), _mm_set1_epi8(15));
  return bytes_to_floats(_mm_sub_epi8(nibbles, _mm_set1_epi8(8)));
#else
  float lanes[16];
  for (int i = 0; i < 16; ++i) lanes[i] = static_cast<float>((p[2 + i] >> (half * 4) & 15) - 8);
  return load16(lanes);
#endif
}

}  // namespace
}  // namespace twofold
