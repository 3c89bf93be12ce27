// Tapes for Python: what is appended is checked here, once, so that a run needs no interpreter. A tape keeps the arrays alive
// that its operations point to.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "bound.hpp"
#include "tape.hpp"
#include "tape_ops.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using twofold::Rows;
using twofold::Tape;
using twofold::Workspace;

// fp32 [rows, values]: a buffer, or the part of one that some columns are.
using Buffer = nb::ndarray<float, nb::ndim<2>, nb::device::cpu>;

std::string shape_of(const Buffer& array) {
  return "[" + std::to_string(array.shape(0)) + ", " + std::to_string(array.shape(1)) + "]";
}

struct BoundTape {
  Tape tape;
  std::vector<nb::ndarray<>> arrays;
  std::vector<nb::object> objects;

  bool has_run = false;

  BoundTape(Workspace& workspace, long rows, bool has_tokens) : tape(workspace, rows, has_tokens) {}

  template <class Array>
  const Array& keep(const Array& array) {
    arrays.emplace_back(array.handle());
    return array;
  }

  // The rows of a buffer of `values` (0: any number of) values each.
  Rows rows(const Buffer& array, long values, const char* name) {
    need(!has_run, "a tape that has run is complete");
    const long n = long(array.shape(1)), stride = tape.rows() == 1 ? n : long(array.stride(0));
    if (long(array.shape(0)) != tape.rows() || (values != 0 && n != values)) {
      throw std::invalid_argument(std::string(name) + " must be [" + std::to_string(tape.rows()) + ", " +
                                  (values == 0 ? "any" : std::to_string(values)) + "], got " + shape_of(array));
    }
    if (n == 0 || (n > 1 && array.stride(1) != 1) || stride < n) {
      throw std::invalid_argument(std::string(name) + " must have its values side by side in rows that do not overlap");
    }
    keep(array);
    return {array.data(), stride};
  }

  void need_tokens() const { need(tape.has_tokens(), "this operation needs the pass's tokens, which the tape does not have"); }
};

long width(const Buffer& array) { return long(array.shape(1)); }

// `values` in `parts` equal parts.
long part(long values, long parts, const char* what) {
  if (parts < 1 || values % parts != 0) {
    throw std::invalid_argument(std::to_string(values) + " values are not " + std::to_string(parts) + " " + what);
  }
  return values / parts;
}

void embed(BoundTape& self, In<std::uint16_t, 2> table, float scale, Buffer out) {
  self.need_tokens();
  const long hidden = long(table.shape(1));
  twofold::add_embed(self.tape, self.keep(table).data(), long(table.shape(0)), hidden, scale, self.rows(out, hidden, "out"));
}

void rms_norm(BoundTape& self, Buffer x, In<float, 1> weight, float eps, Buffer out) {
  const long n = long(weight.shape(0));
  need(n > 0, "the norm's weight is empty");
  const long vectors = width(x) / n;
  need(vectors * n == width(x), "x does not consist of vectors of the weight's length");
  twofold::add_rms_norm(self.tape, self.rows(x, 0, "x"), self.keep(weight).data(), eps, vectors, n,
                        self.rows(out, width(x), "out"));
}

void split_linear(BoundTape& self, nb::object weights, const std::string& label, Buffer x, Buffer out) {
  const twofold::SplitLinear& w = nb::cast<const BoundSplitLinear&>(weights).view;
  const Rows from = self.rows(x, w.in_features, "x"), to = self.rows(out, w.out_features, "out");
  need(!twofold::writes_directly(w) || to.stride == w.out_features, "out must be contiguous");
  self.objects.push_back(std::move(weights));
  twofold::add_split_linear(self.tape, w, label, from, to);
}

void rope(BoundTape& self, Buffer x, long heads, In<float, 2> cos, In<float, 2> sin, In<std::int64_t, 1> filled, Buffer out) {
  self.need_tokens();
  const long dim = part(width(x), heads, "heads"), half = long(cos.shape(1));
  need(sin.shape(0) == cos.shape(0) && sin.shape(1) == cos.shape(1) && 2 * half <= dim, "the tables do not fit the heads");
  need(filled.shape(0) == 1, "filled is one number");
  need(out.data() != x.data(), "out is not x");
  const twofold::RopeTables tables{self.keep(cos).data(), self.keep(sin).data(), self.keep(filled).data(),
                                   long(cos.shape(0)), half};
  twofold::add_rope(self.tape, self.rows(x, 0, "x"), tables, heads, dim, self.rows(out, width(x), "out"));
}

// first_position: int64 [1], read at every run.
const std::int64_t* one_position(BoundTape& self, const In<std::int64_t, 1>& first_position) {
  need(first_position.shape(0) == 1, "first_position is one number");
  return self.keep(first_position).data();
}

template <class Array>
twofold::KvCacheView cache_view(BoundTape& self, const Array& cache, long dim, int kind) {
  need(kind >= 0 && kind <= 2, "no such KV type");
  const auto type = static_cast<twofold::KvType>(kind);
  need(dim > 0 && long(cache.shape(2)) == twofold::kv_head_bytes(type, dim), "a cache does not fit its heads");
  return {self.keep(cache).data(), type, dim};
}

void kv_write(BoundTape& self, Buffer x, Out<std::uint8_t, 3> cache, int kind, In<std::int64_t, 1> first_position) {
  self.need_tokens();
  const long kv_heads = long(cache.shape(1)), dim = part(width(x), kv_heads, "heads");
  const twofold::KvType type = cache_view(self, cache, dim, kind).type;
  const twofold::KvTarget to{cache.data(), type, long(cache.shape(0)), kv_heads, dim, one_position(self, first_position)};
  twofold::add_kv_write(self.tape, self.rows(x, kv_heads * dim, "x"), to);
}

void attention(BoundTape& self, Buffer q, long heads, In<std::uint8_t, 3> k, In<std::uint8_t, 3> v, int k_kind, int v_kind,
               In<std::int64_t, 1> first_position, float scale, long window, Buffer out) {
  self.need_tokens();
  const long kv_heads = long(k.shape(1)), dim = part(width(q), heads, "heads"), v_dim = part(width(out), heads, "heads");
  need(v.shape(0) == k.shape(0) && v.shape(1) == k.shape(1), "the caches of K and V differ in slots or heads");
  need(heads > 0 && kv_heads > 0 && heads % kv_heads == 0, "the heads do not share the KV heads equally");
  need(window >= 0, "a window is at least one position, or 0 for none");
  const Rows from = self.rows(q, heads * dim, "q"), to = self.rows(out, heads * v_dim, "out");
  const twofold::AttentionArgs args{from.data, from.stride, cache_view(self, k, dim, k_kind), cache_view(self, v, v_dim, v_kind),
                                    to.data,   to.stride,   heads, kv_heads, scale, 0};
  twofold::add_attention(self.tape, args, one_position(self, first_position), long(k.shape(0)), window);
}

void silu_mul(BoundTape& self, Buffer gate, Buffer up, Buffer out) {
  const long n = width(gate);
  twofold::add_silu_mul(self.tape, self.rows(gate, 0, "gate"), self.rows(up, n, "up"), n, self.rows(out, n, "out"));
}

void gelu_mul(BoundTape& self, Buffer gate, Buffer up, Buffer out) {
  const long n = width(gate);
  twofold::add_gelu_mul(self.tape, self.rows(gate, 0, "gate"), self.rows(up, n, "up"), n, self.rows(out, n, "out"));
}

void add(BoundTape& self, Buffer x, Buffer y, Buffer out) {
  const long n = width(x);
  twofold::add_add(self.tape, self.rows(x, 0, "x"), self.rows(y, n, "y"), n, self.rows(out, n, "out"));
}

void argmax(BoundTape& self, Buffer x, Buffer out) {
  const long n = width(x);
  const Rows from = self.rows(x, n, "x");
  need(from.stride == n, "x must be contiguous");
  need(n > 0 && n <= 1L << 24, "a float numbers up to 2^24 ids");
  twofold::add_argmax(self.tape, from, n, self.rows(out, 1, "out"));
}

void copy(BoundTape& self, Buffer x, Buffer out) {
  const long n = width(x);
  twofold::add_copy(self.tape, self.rows(x, 0, "x"), n, self.rows(out, n, "out"));
}

void run(BoundTape& self, std::optional<In<std::int64_t, 1>> tokens, std::optional<In<std::int32_t, 1>> parents,
         long n_committed, bool use_residual) {
  Tape& tape = self.tape;
  need(tokens.has_value() == tape.has_tokens() && parents.has_value() == tape.has_tokens(),
       tape.has_tokens() ? "this tape needs tokens and parents" : "this tape has no tokens");
  long first_row = 0;
  if (tokens) {
    need(long(tokens->shape(0)) == tape.rows(), "the tape is for another number of rows");
    need(parents->shape(0) >= tokens->shape(0), "a parent for each row is needed");
    first_row = long(parents->shape(0) - tokens->shape(0));
  }
  const Workspace::Turn turn(tape.workspace());
  self.has_run = true;
  const nb::gil_scoped_release release;
  tape.run(tokens ? tokens->data() : nullptr, parents ? parents->data() : nullptr, first_row, n_committed, use_residual);
}

// Seconds and calls by operation.
std::map<std::string, std::pair<double, std::int64_t>> spent(Workspace& workspace) {
  const Workspace::Turn turn(workspace);
  std::map<std::string, std::pair<double, std::int64_t>> found;
  for (const auto& [name, one] : workspace.spent) found[name] = {static_cast<double>(one.ns) * 1e-9, one.calls};
  return found;
}

void set_profiling(Workspace& workspace, bool on) {
  const Workspace::Turn turn(workspace);
  if (on) workspace.spent.clear();
  workspace.profiling = on;
}

}  // namespace

void bind_tape(nb::module_& m) {
  nb::class_<Workspace>(m, "Workspace", "Scratch of tapes over the same buffers, and where their time goes.")
      .def(nb::init<>())
      .def_prop_ro("nbytes", &Workspace::bytes)
      .def("profile", &set_profiling, "on"_a, "Count time from zero, or stop counting (the default).")
      .def("spent", &spent, "Wall seconds and calls by operation since profile(True).");
  nb::class_<BoundTape>(m, "Tape", "Operations over arrays that it keeps alive, replayed by one call.")
      .def(nb::init<Workspace&, long, bool>(), "workspace"_a, "rows"_a, "has_tokens"_a, nb::keep_alive<1, 2>())
      .def("embed", &embed, "table"_a.noconvert(), "scale"_a, "out"_a.noconvert())
      .def("rms_norm", &rms_norm, "x"_a.noconvert(), "weight"_a.noconvert(), "eps"_a, "out"_a.noconvert())
      .def("split_linear", &split_linear, "weights"_a, "label"_a, "x"_a.noconvert(), "out"_a.noconvert())
      .def("rope", &rope, "x"_a.noconvert(), "heads"_a, "cos"_a.noconvert(), "sin"_a.noconvert(), "filled"_a.noconvert(),
           "out"_a.noconvert())
      .def("kv_write", &kv_write, "x"_a.noconvert(), "cache"_a.noconvert(), "kind"_a, "first_position"_a.noconvert())
      .def("attention", &attention, "q"_a.noconvert(), "heads"_a, "k_cache"_a.noconvert(), "v_cache"_a.noconvert(), "k_type"_a,
           "v_type"_a, "first_position"_a.noconvert(), "scale"_a, "window"_a, "out"_a.noconvert())
      .def("silu_mul", &silu_mul, "gate"_a.noconvert(), "up"_a.noconvert(), "out"_a.noconvert())
      .def("gelu_mul", &gelu_mul, "gate"_a.noconvert(), "up"_a.noconvert(), "out"_a.noconvert())
      .def("add", &add, "x"_a.noconvert(), "y"_a.noconvert(), "out"_a.noconvert())
      .def("argmax", &argmax, "x"_a.noconvert(), "out"_a.noconvert())
      .def("copy", &copy, "x"_a.noconvert(), "out"_a.noconvert())
      .def("run", &run, "tokens"_a.noconvert().none(), "parents"_a.noconvert().none(), "n_committed"_a, "use_residual"_a)
      .def_prop_ro("stages", [](const BoundTape& self) { return self.tape.stages(); });
}
