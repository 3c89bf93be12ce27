// fp16 to fp32 (exact) and back (nearest even), with or without the instructions for it.
#pragma once

#include "vectors.hpp"

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace twofold {
namespace {

TWOFOLD_INLINE float half_to_float(std::uint16_t h) {
#if defined(__F16C__)
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
#else
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000) << 16;
  const std::uint32_t magnitude = h & 0x7FFF;
  std::uint32_t bits;
  if (magnitude >= 0x7C00) {
    bits = sign | 0x7F800000 | (magnitude & 0x3FF) << 13;
    if (magnitude > 0x7C00) bits |= 0x400000;  // a quiet NaN
  } else if (magnitude >= 0x400) {
    bits = sign | ((magnitude << 13) + (112u << 23));
  } else {
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    __builtin_memcpy(&bits, &value, 4);
    bits |= sign;
  }
  float out;
  __builtin_memcpy(&out, &bits, 4);
  return out;
#endif
}

TWOFOLD_INLINE F16v load_half16(const std::uint16_t* p) {
  F16v v;
#if defined(__AVX512F__)
  v.part[0] = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__F16C__)
  v.part[0] = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  v.part[1] = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)));
#else
  float lanes[16];
  for (int i = 0; i < 16; ++i) lanes[i] = half_to_float(p[i]);
  v = load16(lanes);
#endif
  return v;
}

TWOFOLD_INLINE F16v load_half_tail(const std::uint16_t* p, long n) {
  std::uint16_t padded[16] = {};
  __builtin_memcpy(padded, p, static_cast<unsigned long>(n) * sizeof *p);
  return load_half16(padded);
}

// fp32 to fp16, rounded to nearest even; any NaN becomes the quiet one.
TWOFOLD_INLINE std::uint16_t float_to_half(float x) {
#if defined(__F16C__)
  return static_cast<std::uint16_t>(
      _mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)));
#else
  std::uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  const std::uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<std::uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x477FF000u) return static_cast<std::uint16_t>(sign | 0x7C00u);  // 65520 and above
  if (magnitude >= 0x38800000u) {
    return static_cast<std::uint16_t>(sign | ((magnitude + 0xFFF + ((magnitude >> 13) & 1) - 0x38000000u) >> 13));
  }
  // one unit of 0.5 in fp32 is 2^-24, fp16's smallest step: the sum's low bits count those steps
  const float shifted = __builtin_fabsf(x) + 0.5f;
  __builtin_memcpy(&bits, &shifted, 4);
  return static_cast<std::uint16_t>(sign | (bits - 0x3F000000u));
#endif
}

// fp32 rounded to fp16 and back.
TWOFOLD_INLINE float through_half(float x) {
#if defined(__F16C__)
  return half_to_float(static_cast<std::uint16_t>(
      _mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))));
#else
  std::uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  const std::uint32_t sign = bits & 0x80000000u, magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return x;
  std::uint32_t out;
  if (magnitude >= 0x477FF000u) {
    out = 0x7F800000u;  // 65520 and above
  } else if (magnitude >= 0x38800000u) {
    out = (magnitude + 0xFFF + ((magnitude >> 13) & 1)) & ~0x1FFFu;
  } else {
    const float rounded = (__builtin_fabsf(x) + 0.5f) - 0.5f;  // one unit of 0.5 in fp32 is 2^-24, fp16's smallest step
    __builtin_memcpy(&out, &rounded, 4);
  }
  out |= sign;
  __builtin_memcpy(&x, &out, 4);
  return x;
#endif
}

// fp32 rounded to bfloat16 and back.
TWOFOLD_INLINE float through_bfloat(float x) {
  if (x != x) return x;
  std::uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000u;
  __builtin_memcpy(&x, &bits, 4);
  return x;
}

}  // namespace
}  // namespace twofold
