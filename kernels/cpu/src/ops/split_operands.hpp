// How a register of unsigned integers, four inputs a lane, meets a row's activations: the multiply-adds that a tier has.
//
//   Pairs     the even and the odd bytes widened to 16 bits, times t = 254 * q0 + q1: both planes at once, any integers.
//             |u| <= 254 and |t| <= 32385, 256 inputs stay inside int32.
//   Bytes<n>  one plane where there is no dot product of quads: products of two neighbours add up in 16 bits, n registers of
//             them before they are widened, so that n * 2 * 127 * u stays inside int16.
//   Nibbles   eight bits as two times four, whose products each add up in 16 bits, under the factors 1 and 16.
//   Quads<p>  a dot product of four bytes, a plane at a time; 254 * A + B is what t would have given.
//
// All give the same exact sums. The excess, offset * sum(t), is subtracted once a group.
#pragma once

#include "split_decode.hpp"
#include "split_group.hpp"

namespace twofold {
namespace {

TWOFOLD_INLINE V held_broadcast_v(const void* p) {
  V v = broadcast_v(p);
  TWOFOLD_HOLD(v);
  return v;
}

// Where four inputs of an output are the bytes of a lane.
struct WholeBytes {
  template <int Vector, class Source>
  TWOFOLD_MEMBER static V decode(const Source& source, const std::uint8_t* block, long half) {
    return source.template bytes<Vector>(block, half);
  }
};

// And stay so in a strip.
struct StoredBytes : WholeBytes {
  static constexpr int kStored = 1;  // registers that a decoded vector takes
  TWOFOLD_MEMBER static void store(V bytes, std::uint8_t* out, long) { store_v(out, bytes); }
  TWOFOLD_MEMBER static const std::uint8_t* activations(const GroupRows& x) {
    return reinterpret_cast<const std::uint8_t*>(x.q);
  }
};

struct Pairs : WholeBytes {
  static constexpr int kStored = 2, kAtOnce = 1;  // stored registers, and how many add up before they are widened

  // Four inputs of a row, for every register of weights that meets them.
  struct Quad {
    V even, odd;
    TWOFOLD_MEMBER Quad(const GroupRows& x, long row, long input)
        : even(held_broadcast_v(x.t + row * x.stride + input)), odd(held_broadcast_v(x.t + row * x.stride + input + 2)) {}
  };
  // Of one row and register.
  template <int Rows>
  struct Sums {
    V n = {};
    template <int Vector>
    TWOFOLD_MEMBER void add(V bytes, const Quad& x) {
      add_pairs_v(n, even_v(bytes), x.even);
      add_pairs_v(n, odd_v(bytes), x.odd);
    }
    TWOFOLD_MEMBER V total(std::int32_t excess) const { return subtract_v(n, ints_v(excess)); }
  };

  TWOFOLD_MEMBER static void store(V bytes, std::uint8_t* out, long apart) {
    store_v(out, even_v(bytes));
    store_v(out + apart, odd_v(bytes));
  }
  TWOFOLD_MEMBER static const std::uint8_t* activations(const GroupRows& x) {
    return reinterpret_cast<const std::uint8_t*>(x.t);
  }
  TWOFOLD_MEMBER static void add_stored(V& n, V&, V stored, V activations, int) { add_pairs_v(n, stored, activations); }
};

#if defined(TWOFOLD_QUADS)
template <int Planes>
struct Quads : StoredBytes {
  static constexpr int kAtOnce = 1;

  struct Quad {
    V plane[Planes];
    TWOFOLD_MEMBER Quad(const GroupRows& x, long row, long input) {
      for (int p = 0; p < Planes; ++p) plane[p] = broadcast_v(x.q + (2 * row + p) * x.stride + input);
    }
  };
  // Several chains, so that additions do not wait for each other.
  template <int Rows>
  struct Sums {
    static constexpr int kChains = kWidth == 64 ? (Rows == 1 ? 4 : 2) : (Rows * Planes <= 2 ? 2 : 1);
    V n[Planes][kChains] = {};
    template <int Vector>
    TWOFOLD_MEMBER void add(V bytes, const Quad& x) {
      for (int p = 0; p < Planes; ++p) add_quads_v(n[p][Vector % kChains], bytes, x.plane[p]);
    }
    TWOFOLD_MEMBER V plane(int p) const {
      V sum = n[p][0];
      for (int chain = 1; chain < kChains; ++chain) sum = add_v(sum, n[p][chain]);
      return sum;
    }
    TWOFOLD_MEMBER V total(std::int32_t excess) const {
      if (Planes == 1) return subtract_v(plane(0), ints_v(excess));
      const V a = plane(0);  // 254 * a = 256 * a - 2 * a
      return add_v(subtract_v(left_int_v<8>(a), left_int_v<1>(a)), subtract_v(plane(Planes - 1), ints_v(excess)));
    }
  };

  TWOFOLD_MEMBER static void add_stored(V& n, V&, V stored, V activations, int) { add_quads_v(n, stored, activations); }
};

// What multiplies a source's integers fastest where they are decoded as they are needed.
template <int Planes, class Source>
using OperandOf = Quads<Planes>;
#else
// Four inputs of a row in one plane.
struct ByteQuad {
  V bytes;
  TWOFOLD_MEMBER ByteQuad(const GroupRows& x, long row, long input)
      : bytes(held_broadcast_v(x.q + 2 * row * x.stride + input)) {}
};

template <int AtOnce>
struct Bytes : StoredBytes {
  typedef ByteQuad Quad;
  static constexpr int kAtOnce = AtOnce;

  template <int Rows>
  struct Sums {
    V n = {}, part = {};
    template <int Vector>
    TWOFOLD_MEMBER void add(V bytes, const Quad& x) {
      add_stored(n, part, bytes, x.bytes, Vector % AtOnce);
    }
    TWOFOLD_MEMBER V total(std::int32_t excess) const { return subtract_v(n, ints_v(excess)); }
  };

  // The `turn`-th of the registers that are added before they are widened, and multiplied by `factor` then.
  TWOFOLD_MEMBER static void add_stored(V& n, V& part, V stored, V activations, int turn, int factor = 1) {
    const V products = multiply_bytes_v(stored, activations);
    part = turn == 0 ? products : add_words_v(part, products);
    TWOFOLD_HOLD(part);
    if (turn == AtOnce - 1) add_pairs_v(n, part, words_v(factor));
  }
};

struct Nibbles {
  typedef ByteQuad Quad;

  template <int Rows>
  struct Sums {
    V n = {}, low = {}, high = {};
    template <int Vector>
    TWOFOLD_MEMBER void add(const NibblePair& u, const Quad& x) {
      Bytes<4>::add_stored(n, low, u.low, x.bytes, Vector);
      Bytes<4>::add_stored(n, high, u.high, x.bytes, Vector, 16);
    }
    TWOFOLD_MEMBER V total(std::int32_t excess) const { return subtract_v(n, ints_v(excess)); }
  };

  template <int Vector, class Source>
  TWOFOLD_MEMBER static NibblePair decode(const Source& source, const std::uint8_t* block, long half) {
    return source.template nibbles<Vector>(block, half);
  }
};

template <int Planes, int Bits, int AtOnce>
struct OperandOfBits {
  typedef Pairs Type;
};
template <int Bits, int AtOnce>
struct OperandOfBits<1, Bits, AtOnce> {
  typedef Bytes<AtOnce> Type;
};
template <int AtOnce>
struct OperandOfBits<1, 8, AtOnce> {
  typedef Nibbles Type;
};
// What multiplies a source's integers fastest where they are decoded as they are needed. One plane: only where `is_small`.
template <int Planes, class Source>
using OperandOf = typename OperandOfBits<Planes, Source::kBits, Source::kAtOnce>::Type;
#endif

}  // namespace
}  // namespace twofold
