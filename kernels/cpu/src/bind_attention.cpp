// The KV cache's operations, each bit-equal to its twin in kernels/naive; see bind_ops.cpp.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <stdexcept>

#include "attention.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

template <class T, int N>
using In = nb::ndarray<const T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <class T, int N>
using Out = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

void need(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(what);
}

twofold::KvType kv_type(int kind) {
  need(kind >= 0 && kind <= 2, "no such KV type");
  return static_cast<twofold::KvType>(kind);
}

// A cache as bytes [slots][kv_heads][bytes of one head].
template <class Array>
void check_cache(const Array& cache, long dim, twofold::KvType type) {
  need(dim > 0 && long(cache.shape(2)) == twofold::kv_head_bytes(type, dim), "a cache does not fit its heads");
}

}  // namespace

void bind_attention(nb::module_& m) {
  m.def(
      "attention",
      [](In<float, 3> q, In<std::uint8_t, 3> k, In<std::uint8_t, 3> v, long n_committed, In<std::int32_t, 1> parents,
         float scale, long window, int k_kind, int v_kind, long first_position, Out<float, 3> out) {
        const long rows = long(q.shape(0)), heads = long(q.shape(1)), kv_heads = long(k.shape(1));
        const long dim = long(q.shape(2)), v_dim = long(out.shape(2)), behind = long(parents.shape(0));
        const twofold::KvType k_type = kv_type(k_kind), v_type = kv_type(v_kind);
        check_cache(k, dim, k_type);
        check_cache(v, v_dim, v_type);
        need(v.shape(0) == k.shape(0) && v.shape(1) == k.shape(1) && out.shape(0) == q.shape(0) &&
                 out.shape(1) == q.shape(1) && kv_heads > 0 && heads % kv_heads == 0,
             "shapes differ");
        need(behind >= rows && n_committed >= 0 && n_committed <= long(k.shape(0)) - behind && window >= 0 &&
                 first_position >= 0 && first_position <= twofold::kMostPositions &&
                 (first_position == 0 || (window > 0 && n_committed + 1 >= window)),
             "positions outside the cache");
        for (long row = 0; row < behind; ++row) {
          need(parents.data()[row] >= -1 && parents.data()[row] < row, "a row's parent is -1 or an earlier row");
        }
        const twofold::AttentionArgs args{q.data(),       heads * dim, {k.data(), k_type, dim}, {v.data(), v_type, v_dim},
                                          out.data(),     heads * v_dim, heads, kv_heads, scale, first_position};
        const nb::gil_scoped_release release;
        twofold::attention_rows(args, rows, behind - rows, n_committed, parents.data(), window);
      },
      "q"_a.noconvert(), "k_cache"_a.noconvert(), "v_cache"_a.noconvert(), "n_committed"_a, "parents"_a.noconvert(),
      "scale"_a, "window"_a, "k_type"_a, "v_type"_a, "first_position"_a, "out"_a.noconvert());
  m.def(
      "kv_write",
      [](In<float, 3> x, Out<std::uint8_t, 3> cache, long first_slot, int kind) {
        const twofold::KvType type = kv_type(kind);
        const long rows = long(x.shape(0)), kv_heads = long(x.shape(1)), dim = long(x.shape(2));
        check_cache(cache, dim, type);
        need(cache.shape(1) == x.shape(1) && first_slot >= 0 && first_slot <= long(cache.shape(0)) - rows,
             "slots outside the cache");
        const nb::gil_scoped_release release;
        twofold::kv_write_rows(x.data(), kv_heads * dim, rows, kv_heads, dim, type, first_slot, cache.data());
      },
      "x"_a.noconvert(), "cache"_a.noconvert(), "first_slot"_a, "kind"_a);
}
