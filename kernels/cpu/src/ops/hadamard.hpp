// Hadamard transforms of blocks: butterflies of stride 1, 2, 4, ... in that order, then one factor.
//
// Short strides run between and within registers and long ones two or three a pass over memory. Each value goes through the
// same additions as with one pass per stride, so no bit differs.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "vectors.hpp"

namespace twofold {
namespace {

// Registers of one or two quads.
#if defined(__AVX2__)
typedef F8 QuadFloats;
typedef std::int32_t QuadInts __attribute__((vector_size(32)));
#define TWOFOLD_EVENS 0, 2, 8, 10, 4, 6, 12, 14
#define TWOFOLD_ODDS 1, 3, 9, 11, 5, 7, 13, 15
#else
typedef F4 QuadFloats;
typedef std::int32_t QuadInts __attribute__((vector_size(16)));
#define TWOFOLD_EVENS 0, 2, 4, 6
#define TWOFOLD_ODDS 1, 3, 5, 7
#endif
constexpr long kQuadLanes = sizeof(QuadFloats) / sizeof(float);

#if defined(__clang__)
#define TWOFOLD_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define TWOFOLD_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, QuadInts{__VA_ARGS__})
#endif

TWOFOLD_INLINE QuadFloats load_quads(const float* p) {
  QuadFloats v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
TWOFOLD_INLINE void store_quads(const QuadFloats& v, float* p) { __builtin_memcpy(p, &v, sizeof v); }

TWOFOLD_INLINE QuadFloats load_signs(const std::int8_t* p) {
#if defined(__AVX2__)
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
  return QuadFloats{float(p[0]), float(p[1]), float(p[2]), float(p[3])};
#endif
}

// Where values come from.
struct PlainFrom {
  const float* x;
  TWOFOLD_MEMBER float one(long i) const { return x[i]; }
  TWOFOLD_MEMBER QuadFloats quads(long i) const { return load_quads(x + i); }
};
struct SignedFrom {
  const float* x;
  const std::int8_t* signs;
  TWOFOLD_MEMBER float one(long i) const { return x[i] * static_cast<float>(signs[i]); }
  TWOFOLD_MEMBER QuadFloats quads(long i) const { return load_quads(x + i) * load_signs(signs + i); }
};

// Where they go; `t` also holds what lies between two passes.
struct PlainTo {
  float* t;
  TWOFOLD_MEMBER void put(long i, const QuadFloats& v) const { store_quads(v, t + i); }
};
struct ScaledTo {
  float* t;
  float factor;
  TWOFOLD_MEMBER void put_one(long i, float x) const { t[i] = x * factor; }
  TWOFOLD_MEMBER void put(long i, const QuadFloats& v) const { store_quads(v * factor, t + i); }
};
struct SignedTo {
  float* t;
  float factor;
  const std::int8_t* signs;
  TWOFOLD_MEMBER void put_one(long i, float x) const { t[i] = x * factor * static_cast<float>(signs[i]); }
  TWOFOLD_MEMBER void put(long i, const QuadFloats& v) const { store_quads(v * factor * load_signs(signs + i), t + i); }
};

TWOFOLD_INLINE void butterfly(QuadFloats& a, QuadFloats& b) {
  const QuadFloats x = a, y = b;
  a = x + y;
  b = x - y;
}

// The even lanes of every quad of both to a, the odd ones to b.
TWOFOLD_INLINE void deal(QuadFloats& a, QuadFloats& b) {
  const QuadFloats x = a, y = b;
  a = TWOFOLD_SHUFFLE(x, y, TWOFOLD_EVENS);
  b = TWOFOLD_SHUFFLE(x, y, TWOFOLD_ODDS);
}

// Strides 1 and 2. Dealt three times, lanes are where they were.
TWOFOLD_INLINE void butterflies_in_quads(QuadFloats& a, QuadFloats& b) {
  deal(a, b);
  butterfly(a, b);
  deal(a, b);
  butterfly(a, b);
  deal(a, b);
}

// Strides of 1, 2, ... N / 2 registers.
template <int N, int Step = 1>
TWOFOLD_INLINE void butterflies_between(QuadFloats* v) {
#pragma GCC unroll 8
  for (int k = 0; k < N; ++k) {
    if ((k & Step) == 0) butterfly(v[k], v[k + Step]);
  }
  if constexpr (2 * Step < N) butterflies_between<N, 2 * Step>(v);
}

#if defined(__AVX2__)
// The upper half of a for the lower half of b. For b a single instruction would do, of eight operations on Zen 1.
TWOFOLD_INLINE void exchange_halves(QuadFloats& a, QuadFloats& b) {
  const __m256 x = a, y = b;
  a = _mm256_insertf128_ps(x, _mm256_castps256_ps128(y), 1);
  b = _mm256_blend_ps(_mm256_castps128_ps256(_mm256_extractf128_ps(x, 1)), y, 0xf0);
}

// A block of N registers, each a quad of the block's first half and the same one of its second, so that only the last stride
// runs within registers.
template <int N, class From>
TWOFOLD_INLINE void load_block(const From& from, long start, QuadFloats* v) {
#pragma GCC unroll 4
  for (int k = 0; k < N; k += 2) {
    v[k] = from.quads(start + 4 * k);
    v[k + 1] = from.quads(start + 4 * (N + k));
    exchange_halves(v[k], v[k + 1]);
  }
}
template <int N, class To>
TWOFOLD_INLINE void store_block(QuadFloats* v, const To& to, long start) {
#pragma GCC unroll 4
  for (int k = 0; k < N; k += 2) {
    exchange_halves(v[k], v[k + 1]);
    butterfly(v[k], v[k + 1]);
    to.put(start + 4 * k, v[k]);
    to.put(start + 4 * (N + k), v[k + 1]);
  }
}

// Blocks of one register, beside one of zeros.
template <class From, class To>
void hadamard_of_eights(const From& from, const To& to, long dim) {
  for (long start = 0; start < dim; start += 8) {
    QuadFloats v = from.quads(start), zeros = {};
    butterflies_in_quads(v, zeros);
    exchange_halves(v, zeros);
    butterfly(v, zeros);
    exchange_halves(v, zeros);
    to.put(start, v);
  }
}
#else
template <int N, class From>
TWOFOLD_INLINE void load_block(const From& from, long start, QuadFloats* v) {
#pragma GCC unroll 8
  for (int k = 0; k < N; ++k) v[k] = from.quads(start + 4 * k);
}
template <int N, class To>
TWOFOLD_INLINE void store_block(QuadFloats* v, const To& to, long start) {
#pragma GCC unroll 8
  for (int k = 0; k < N; ++k) to.put(start + 4 * k, v[k]);
}
#endif

// All strides inside blocks of N registers.
template <int N, class From, class To>
void hadamard_in_registers(const From& from, const To& to, long dim) {
  for (long start = 0; start < dim; start += N * kQuadLanes) {
    QuadFloats v[N];
    load_block<N>(from, start, v);
#pragma GCC unroll 4
    for (int k = 0; k < N; k += 2) butterflies_in_quads(v[k], v[k + 1]);
    butterflies_between<N>(v);
    store_block<N>(v, to, start);
  }
}

// Strides of `stride`, 2 stride, ... N / 2 stride, in one pass over to.t.
template <int N, class To>
void hadamard_pass(const To& to, long dim, long stride) {
  for (long start = 0; start < dim; start += N * stride) {
    for (long i = start; i < start + stride; i += kQuadLanes) {
      QuadFloats v[N];
#pragma GCC unroll 8
      for (int k = 0; k < N; ++k) v[k] = load_quads(to.t + i + k * stride);
      butterflies_between<N>(v);
#pragma GCC unroll 8
      for (int k = 0; k < N; ++k) to.put(i + k * stride, v[k]);
    }
  }
}

template <class To>
void hadamard_passes(const To& to, long dim, long width, long stride) {
  const PlainTo between{to.t};
  for (; width / stride > 16; stride *= 8) hadamard_pass<8>(between, dim, stride);
  if (width / stride == 16) {
    hadamard_pass<4>(between, dim, stride);
    stride *= 4;
  }
  if (width / stride == 2) return hadamard_pass<2>(to, dim, stride);
  if (width / stride == 4) return hadamard_pass<4>(to, dim, stride);
  hadamard_pass<8>(to, dim, stride);
}

// Widths below eight.
template <class From, class To>
void hadamard_narrow(const From& from, const To& to, long dim, long width) {
  for (long i = 0; i < dim; ++i) to.t[i] = from.one(i);
  for (long stride = 1; stride < width; stride *= 2) {
    for (long start = 0; start < dim; start += 2 * stride) {
      for (long i = start; i < start + stride; ++i) {
        const float a = to.t[i], b = to.t[i + stride];
        to.t[i] = a + b;
        to.t[i + stride] = a - b;
      }
    }
  }
  for (long i = 0; i < dim; ++i) to.put_one(i, to.t[i]);
}

template <class From, class To>
TWOFOLD_INLINE void hadamard(const From& from, const To& to, long dim, long width) {
  constexpr long kInRegisters = 8 * kQuadLanes;
#if defined(__AVX2__)
  if (width == 8) return hadamard_of_eights(from, to, dim);
#endif
  if (width < 2 * kQuadLanes) return hadamard_narrow(from, to, dim, width);
  if (width == kInRegisters / 4) return hadamard_in_registers<2>(from, to, dim);
  if (width == kInRegisters / 2) return hadamard_in_registers<4>(from, to, dim);
  if (width == kInRegisters) return hadamard_in_registers<8>(from, to, dim);
  hadamard_in_registers<8>(from, PlainTo{to.t}, dim);
  hadamard_passes(to, dim, width, kInRegisters);
}

TWOFOLD_INLINE float hadamard_factor(long width) {
  return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(width)));
}

void hadamard_blocks(float* t, long dim, long width) {
  hadamard(PlainFrom{t}, ScaledTo{t, hadamard_factor(width)}, dim, width);
}

#undef TWOFOLD_EVENS
#undef TWOFOLD_ODDS
#undef TWOFOLD_SHUFFLE

}  // namespace
}  // namespace twofold
