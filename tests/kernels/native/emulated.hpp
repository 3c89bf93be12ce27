// Instructions that the machine of a test may lack, one lane at a time in plain C++ as Intel's manual defines them. Included
// ahead of a tier's source, it compiles that very source without them: slow, and the same bits.
// -DEMULATE=1: AVX-VNNI over AVX2; 2: AVX-512 with VNNI; 3: with VBMI too.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#define TWOFOLD_HOLD(v) static_cast<void>(v)  // no register is wide enough

namespace emulated {

template <class T, class V>
struct Lanes {
  static constexpr int kCount = sizeof(V) / sizeof(T);
  T lane[kCount];
  explicit Lanes(const V& v) { std::memcpy(lane, &v, sizeof v); }
  Lanes() = default;
  V vector() const {
    V v;
    std::memcpy(&v, lane, sizeof v);
    return v;
  }
};

template <class T, class V, class F>
inline V each(const F& f) {
  Lanes<T, V> out;
  for (int i = 0; i < Lanes<T, V>::kCount; ++i) out.lane[i] = static_cast<T>(f(i));
  return out.vector();
}

template <class V>
inline V dot_words(V sum, V a, V b) {
  const Lanes<std::uint32_t, V> s(sum);
  const Lanes<std::int16_t, V> x(a), y(b);
  return each<std::uint32_t, V>([&](int i) {
    const std::int32_t low = x.lane[2 * i] * y.lane[2 * i], high = x.lane[2 * i + 1] * y.lane[2 * i + 1];
    return s.lane[i] + static_cast<std::uint32_t>(low) + static_cast<std::uint32_t>(high);
  });
}

template <class V>
inline V dot_bytes(V sum, V a, V b) {
  const Lanes<std::uint32_t, V> s(sum);
  const Lanes<std::uint8_t, V> x(a);
  const Lanes<std::int8_t, V> y(b);
  return each<std::uint32_t, V>([&](int i) {
    std::int32_t total = 0;
    for (int k = 4 * i; k < 4 * i + 4; ++k) total += x.lane[k] * y.lane[k];
    return s.lane[i] + static_cast<std::uint32_t>(total);
  });
}

typedef __m512i Z;

template <class T>
inline Z set(T value) {
  return each<T, Z>([&](int) { return value; });
}
template <class T, class F>
inline Z map(Z a, const F& f) {
  const Lanes<T, Z> x(a);
  return each<T, Z>([&](int i) { return f(x.lane[i]); });
}
template <class T, class F>
inline Z zip(Z a, Z b, const F& f) {
  const Lanes<T, Z> x(a), y(b);
  return each<T, Z>([&](int i) { return f(x.lane[i], y.lane[i]); });
}
inline Z load(const void* p) {
  Z v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void store(void* p, Z v) { std::memcpy(p, &v, sizeof v); }
inline Z broadcast_lane(__m128i lane) {
  const Lanes<std::uint8_t, __m128i> x(lane);
  return each<std::uint8_t, Z>([&](int i) { return x.lane[i % 16]; });
}
inline Z shuffle(Z table, Z index) {
  const Lanes<std::uint8_t, Z> t(table), x(index);
  return each<std::uint8_t, Z>([&](int i) { return x.lane[i] & 0x80 ? 0 : t.lane[i / 16 * 16 + (x.lane[i] & 15)]; });
}
inline Z permute(Z index, Z table) {
  const Lanes<std::uint8_t, Z> t(table), x(index);
  return each<std::uint8_t, Z>([&](int i) { return t.lane[x.lane[i] & 63]; });
}
inline Z ternary(Z a, Z b, Z c, int truth) {
  const Lanes<std::uint32_t, Z> x(a), y(b), z(c);
  return each<std::uint32_t, Z>([&](int i) {
    std::uint32_t out = 0;
    for (int bit = 0; bit < 32; ++bit) {
      const int row = (x.lane[i] >> bit & 1) << 2 | (y.lane[i] >> bit & 1) << 1 | (z.lane[i] >> bit & 1);
      out |= static_cast<std::uint32_t>(truth >> row & 1) << bit;
    }
    return out;
  });
}
inline Z add_masked(Z otherwise, std::uint64_t mask, Z a, Z b) {
  const Lanes<std::uint8_t, Z> o(otherwise), x(a), y(b);
  return each<std::uint8_t, Z>([&](int i) { return mask >> i & 1 ? x.lane[i] + y.lane[i] : o.lane[i]; });
}
inline __m512 halves(__m256i h) {
  __m128i in[2];
  std::memcpy(in, &h, sizeof h);
  const __m256 out[2] = {_mm256_cvtph_ps(in[0]), _mm256_cvtph_ps(in[1])};
  __m512 v;
  std::memcpy(&v, out, sizeof v);
  return v;
}
inline Z widened(__m128i bytes) {
  const Lanes<std::int8_t, __m128i> x(bytes);
  return each<std::int32_t, Z>([&](int i) { return x.lane[i]; });
}
inline __m512 floats(Z ints) {
  const Lanes<std::int32_t, Z> x(ints);
  return each<float, __m512>([&](int i) { return x.lane[i]; });
}
inline __m256i to_halves(__m512 v) {
  __m256 in[2];
  std::memcpy(in, &v, sizeof v);
  const __m128i out[2] = {_mm256_cvtps_ph(in[0], 0), _mm256_cvtps_ph(in[1], 0)};
  __m256i h;
  std::memcpy(&h, out, sizeof h);
  return h;
}

}  // namespace emulated

#if EMULATE == 1
#define __AVXVNNI__ 1
#define _mm256_dpwssd_avx_epi32 emulated::dot_words<__m256i>
#define _mm256_dpbusd_avx_epi32 emulated::dot_bytes<__m256i>
#else
#define __AVX512F__ 1
#define __AVX512BW__ 1
#define _mm512_dpwssd_epi32 emulated::dot_words<__m512i>
#define _mm512_dpbusd_epi32 emulated::dot_bytes<__m512i>
#define _mm512_loadu_si512 emulated::load
#define _mm512_storeu_si512 emulated::store
#define _mm512_set1_epi8(x) emulated::set<std::int8_t>(x)
#define _mm512_set1_epi16(x) emulated::set<std::int16_t>(x)
#define _mm512_set1_epi32(x) emulated::set<std::int32_t>(x)
#define _mm512_and_si512(a, b) emulated::zip<std::uint32_t>(a, b, [](std::uint32_t x, std::uint32_t y) { return x & y; })
#define _mm512_add_epi32(a, b) emulated::zip<std::uint32_t>(a, b, [](std::uint32_t x, std::uint32_t y) { return x + y; })
#define _mm512_sub_epi32(a, b) emulated::zip<std::uint32_t>(a, b, [](std::uint32_t x, std::uint32_t y) { return x - y; })
#define _mm512_srli_epi16(a, n) emulated::map<std::uint16_t>(a, [](std::uint16_t x) { return x >> (n); })
#define _mm512_slli_epi16(a, n) emulated::map<std::uint16_t>(a, [](std::uint16_t x) { return x << (n); })
#define _mm512_slli_epi32(a, n) emulated::map<std::uint32_t>(a, [](std::uint32_t x) { return x << (n); })
#define _mm512_shuffle_epi8 emulated::shuffle
#define _mm512_broadcast_i32x4 emulated::broadcast_lane
#undef _mm512_ternarylogic_epi32
#define _mm512_ternarylogic_epi32 emulated::ternary
#define _mm512_mask_add_epi8 emulated::add_masked
#define _mm512_cvtph_ps emulated::halves
#define _mm512_cvtepi8_epi32 emulated::widened
#define _mm512_cvtepi32_ps emulated::floats
#undef _mm512_cvtps_ph
#define _mm512_cvtps_ph(v, rounding) emulated::to_halves(v)
#if EMULATE == 3
#define __AVX512VBMI__ 1
#define _mm512_permutexvar_epi8 emulated::permute
#endif
#endif
