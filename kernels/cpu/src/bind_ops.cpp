// The engine's operations, each bit-equal to its twin in kernels/naive. Shapes are checked by kernels/cpu/ops.py as naive
// checks them, and here again for what memory safety needs. The interpreter lock is released while an operation runs.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "bound.hpp"
#include "chosen_rows.hpp"
#include "dispatch.hpp"
#include "draw.hpp"
#include "last_match.hpp"
#include "pass_ops.hpp"
#include "round_columns.hpp"
#include "split_linear.hpp"
#include "thread_pool.hpp"
#include "shortlist.hpp"
#include "top_k.hpp"
#include "uniform.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

long power_of_two_in(long n) { return n & -n; }

void check_mix(const std::optional<In<float, 2>>& mix, long dim) {
  const std::size_t m = static_cast<std::size_t>(dim / power_of_two_in(dim));
  need(!mix || (mix->shape(0) == m && mix->shape(1) == m), "a mix matrix does not fit its dimension");
}

void init_split_linear(BoundSplitLinear* self, long in_features, const std::vector<long>& member_rows,
                       In<std::uint8_t, 3> base_codes, In<std::uint16_t, 3> base_scales, const std::vector<int>& levels,
                       In<std::uint8_t, 3> residual_codes, In<std::uint16_t, 3> residual_scales, int residual_bits,
                       long group_size, int base_planes, int residual_planes, int exchange, In<std::int8_t, 1> input_signs,
                       std::optional<In<std::int8_t, 1>> output_signs, std::optional<In<float, 2>> mix_in,
                       const std::vector<std::optional<In<float, 2>>>& mix_out, std::optional<In<float, 1>> bias) {
  need(in_features > 0 && group_size >= 16 && group_size <= 256 && group_size % 16 == 0, "bad inputs or group size");
  need(residual_bits >= 4 && residual_bits <= 8 && levels.size() == 4 && exchange >= 0 && exchange <= 2, "bad format");
  BoundSplitLinear bound;
  twofold::SplitLinear& w = bound.view;
  w.in_features = in_features, w.group_size = group_size;
  w.blocks = (in_features + 15) / 16, w.groups = (in_features + group_size - 1) / group_size;
  w.base_planes = base_planes, w.residual_planes = residual_planes;
  w.exchange = static_cast<twofold::Exchange>(exchange);
  need(mix_out.empty() || mix_out.size() == member_rows.size(), "mix_out does not fit the members");
  check_mix(mix_in, in_features);
  for (std::size_t i = 0; i < member_rows.size(); ++i) {
    const long rows = member_rows[i];
    need(rows > 0, "a member has no rows");
    const float* mix = nullptr;
    if (!mix_out.empty() && mix_out[i]) {
      check_mix(mix_out[i], rows);
      mix = bound.keep<float, 2>(*mix_out[i]);
    }
    w.members.push_back({rows, w.tiles, w.out_features, mix});
    w.tiles += (rows + 15) / 16, w.out_features += rows;
  }
  const auto fits = [&](const auto& array, long second, long third) {
    return array.shape(0) == static_cast<std::size_t>(w.tiles) && array.shape(1) == static_cast<std::size_t>(second) &&
           array.shape(2) == static_cast<std::size_t>(third);
  };
  need(fits(base_codes, w.blocks, 64) && fits(base_scales, w.groups, 16), "the base does not fit its shape");
  need(fits(residual_codes, w.blocks, 32 * residual_bits) && fits(residual_scales, w.groups, 16),
       "the residual does not fit its shape");
  const std::size_t outputs = static_cast<std::size_t>(w.out_features);
  need(input_signs.shape(0) == static_cast<std::size_t>(in_features), "input signs do not fit");
  need(!output_signs || output_signs->shape(0) == outputs, "output signs do not fit");
  need(!bias || bias->shape(0) == outputs, "the bias does not fit");
  const int lowest = *std::min_element(levels.begin(), levels.end());
  w.base = {bound.keep<std::uint8_t, 3>(base_codes), bound.keep<std::uint16_t, 3>(base_scales), 2, {}, -lowest};
  for (std::size_t i = 0; i < 4; ++i) w.base.levels[i] = static_cast<std::uint8_t>(levels[i] - lowest);
  w.residual = {bound.keep<std::uint8_t, 3>(residual_codes), bound.keep<std::uint16_t, 3>(residual_scales), residual_bits,
                {}, (1 << (residual_bits - 1)) - 1};
  w.input_signs = bound.keep<std::int8_t, 1>(input_signs);
  w.output_signs = output_signs ? bound.keep<std::int8_t, 1>(*output_signs) : nullptr;
  w.mix_in = mix_in ? bound.keep<float, 2>(*mix_in) : nullptr;
  w.bias = bias ? bound.keep<float, 1>(*bias) : nullptr;
  new (self) BoundSplitLinear(std::move(bound));
}

void bind_split_linear(nb::module_& m) {
  nb::class_<BoundSplitLinear>(m, "SplitLinear", "A split Linear group over arrays that it keeps alive.")
      .def("__init__", &init_split_linear, "in_features"_a, "member_rows"_a, "base_codes"_a.noconvert(),
           "base_scales"_a.noconvert(), "levels"_a, "residual_codes"_a.noconvert(), "residual_scales"_a.noconvert(),
           "residual_bits"_a, "group_size"_a, "base_planes"_a, "residual_planes"_a, "exchange"_a,
           "input_signs"_a.noconvert(), "output_signs"_a.noconvert().none(), "mix_in"_a.noconvert().none(), "mix_out"_a,
           "bias"_a.noconvert().none())
      .def(
          "__call__",
          [](const BoundSplitLinear& self, In<float, 2> x, bool use_residual, Out<float, 2> out) {
            const twofold::SplitLinear& w = self.view;
            need(x.shape(1) == static_cast<std::size_t>(w.in_features) && out.shape(0) == x.shape(0) &&
                     out.shape(1) == static_cast<std::size_t>(w.out_features),
                 "x or out does not fit the weights");
            const nb::gil_scoped_release release;
            twofold::split_linear(w, x.data(), static_cast<long>(x.shape(0)), use_residual, out.data());
          },
          "x"_a.noconvert(), "use_residual"_a, "out"_a.noconvert())
      .def(
          "chosen",
          [](const BoundSplitLinear& self, In<float, 2> x, In<std::int64_t, 2> ids, Out<float, 2> out) {
            const twofold::SplitLinear& w = self.view;
            need(x.shape(1) == static_cast<std::size_t>(w.in_features) && ids.shape(0) == x.shape(0) &&
                     out.shape(0) == x.shape(0) && out.shape(1) == ids.shape(1),
                 "x, ids or out does not fit the weights");
            need(w.members.size() == 1 && w.output_signs == nullptr, "the outputs cannot be chosen from");
            const std::int64_t* end = ids.data() + ids.size();
            need(std::all_of(ids.data(), end, [&](std::int64_t id) { return id >= 0 && id < w.out_features; }), "no such output");
            const nb::gil_scoped_release release;
            twofold::split_linear_chosen(w, x.data(), static_cast<long>(x.shape(0)), ids.data(),
                                         static_cast<long>(ids.shape(1)), out.data());
          },
          "x"_a.noconvert(), "ids"_a.noconvert(), "out"_a.noconvert())
      .def(
          "shortlist",
          [](const BoundSplitLinear& self, In<float, 2> logits, In<float, 2> x, std::size_t n, Out<std::int64_t, 2> out) {
            const twofold::SplitLinear& w = self.view;
            const std::size_t vocab = static_cast<std::size_t>(w.out_features), k = out.shape(1);
            need(x.shape(1) == static_cast<std::size_t>(w.in_features) && logits.shape(1) == vocab &&
                     logits.shape(0) == x.shape(0) && out.shape(0) == x.shape(0) && 1 <= k && k <= n && n <= vocab,
                 "logits, x, n or out does not fit the weights");
            need(w.members.size() == 1 && w.output_signs == nullptr, "the outputs cannot be chosen from");
            long bad;
            {
              const nb::gil_scoped_release release;
              bad = twofold::shortlist(w, logits.data(), x.data(), long(x.shape(0)), long(n), long(k), out.data());
            }
            if (bad >= 0) throw std::invalid_argument("NaN among the logits of row " + std::to_string(bad));
          },
          "logits"_a.noconvert(), "x"_a.noconvert(), "n"_a, "out"_a.noconvert());
}

void bind_rows(nb::module_& m) {
  m.def(
      "rms_norm",
      [](In<float, 2> x, In<float, 1> weight, float eps, Out<float, 2> out) {
        need(weight.shape(0) == x.shape(1) && out.shape(0) == x.shape(0) && out.shape(1) == x.shape(1), "shapes differ");
        const nb::gil_scoped_release release;
        twofold::rms_norm_rows(x.data(), weight.data(), eps, long(x.shape(0)), long(x.shape(1)), out.data());
      },
      "x"_a.noconvert(), "weight"_a.noconvert(), "eps"_a, "out"_a.noconvert());
  m.def(
      "rope",
      [](In<float, 3> x, In<float, 2> cos, In<float, 2> sin, Out<float, 3> out) {
        need(cos.shape(0) == x.shape(0) && sin.shape(0) == x.shape(0) && sin.shape(1) == cos.shape(1) &&
                 2 * cos.shape(1) <= x.shape(2) && out.shape(0) == x.shape(0) && out.shape(1) == x.shape(1) &&
                 out.shape(2) == x.shape(2) && out.data() != x.data(),
             "shapes differ");
        const nb::gil_scoped_release release;
        twofold::rope_rows(x.data(), cos.data(), sin.data(), long(x.shape(0)), long(x.shape(1)), long(x.shape(2)),
                           long(cos.shape(1)), out.data());
      },
      "x"_a.noconvert(), "cos"_a.noconvert(), "sin"_a.noconvert(), "out"_a.noconvert());
  m.def(
      "silu_mul",
      [](In<float, 1> gate, In<float, 1> up, Out<float, 1> out) {
        need(up.shape(0) == gate.shape(0) && out.shape(0) == gate.shape(0), "shapes differ");
        const nb::gil_scoped_release release;
        twofold::silu_mul_all(gate.data(), up.data(), long(gate.shape(0)), out.data());
      },
      "gate"_a.noconvert(), "up"_a.noconvert(), "out"_a.noconvert());
  m.def(
      "gelu_mul",
      [](In<float, 1> gate, In<float, 1> up, Out<float, 1> out) {
        need(up.shape(0) == gate.shape(0) && out.shape(0) == gate.shape(0), "shapes differ");
        const nb::gil_scoped_release release;
        twofold::gelu_mul_all(gate.data(), up.data(), long(gate.shape(0)), out.data());
      },
      "gate"_a.noconvert(), "up"_a.noconvert(), "out"_a.noconvert());
  m.def(
      "add",
      [](In<float, 1> x, In<float, 1> y, Out<float, 1> out) {
        need(y.shape(0) == x.shape(0) && out.shape(0) == x.shape(0), "shapes differ");
        const nb::gil_scoped_release release;
        twofold::add_all(x.data(), y.data(), long(x.shape(0)), out.data());
      },
      "x"_a.noconvert(), "y"_a.noconvert(), "out"_a.noconvert());
  m.def(
      "embed",
      [](In<std::uint16_t, 2> table, In<std::int64_t, 1> tokens, Out<float, 2> out) {
        need(out.shape(0) == tokens.shape(0) && out.shape(1) == table.shape(1), "shapes differ");
        const long bad = twofold::embed_rows(table.data(), long(table.shape(0)), long(table.shape(1)), tokens.data(),
                                             long(tokens.shape(0)), out.data());
        if (bad >= 0) {
          throw std::invalid_argument("token " + std::to_string(tokens.data()[bad]) + " is outside a vocabulary of " +
                                      std::to_string(table.shape(0)));
        }
      },
      "table"_a.noconvert(), "tokens"_a.noconvert(), "out"_a.noconvert());
  m.def(
      "argmax",
      [](In<float, 2> logits, Out<std::int64_t, 1> out) {
        need(out.shape(0) == logits.shape(0) && logits.shape(1) > 0, "argmax of no logits");
        const nb::gil_scoped_release release;
        twofold::argmax_rows(logits.data(), long(logits.shape(0)), long(logits.shape(1)), out.data());
      },
      "logits"_a.noconvert(), "out"_a.noconvert());
  m.def(
      "softmax_total",
      [](In<float, 1> logits, float peak, float sharpness) {
        const nb::gil_scoped_release release;
        return twofold::softmax_total_of(logits.data(), long(logits.shape(0)), peak, sharpness);
      },
      "logits"_a.noconvert(), "peak"_a, "sharpness"_a);
  m.def(
      "draw",
      [](In<float, 1> logits, float peak, float sharpness, long keep, double top_p, double min_p, double u) {
        need(logits.shape(0) > 0 && keep >= 0 && u >= 0.0 && u < 1.0, "cannot draw");
        const nb::gil_scoped_release release;
        return twofold::draw(logits.data(), long(logits.shape(0)), peak, {sharpness, keep, top_p, min_p}, u);
      },
      "logits"_a.noconvert(), "peak"_a, "sharpness"_a, "keep"_a, "top_p"_a, "min_p"_a, "u"_a);
  m.def(
      "last_match",
      [](In<std::int32_t, 1> tokens, long most) {
        need(tokens.shape(0) > 0 && most > 0, "a match of nothing");
        const nb::gil_scoped_release release;
        const twofold::Match found = twofold::last_match(tokens.data(), long(tokens.shape(0)), most);
        return std::pair(found.length, found.next);
      },
      "tokens"_a.noconvert(), "most"_a, "(length, position behind the earlier run).");
  m.def("uniform", &twofold::uniform, "seed"_a, "position"_a, "A number in [0, 1).");
  m.def(
      "top_k",
      [](In<float, 2> logits, Out<std::int64_t, 2> out) {
        const std::size_t k = out.shape(1);
        need(out.shape(0) == logits.shape(0) && k >= 1 && k <= logits.shape(1), "top_k of too few logits");
        long bad;
        {
          const nb::gil_scoped_release release;
          bad = twofold::top_k_rows(logits.data(), long(logits.shape(0)), long(logits.shape(1)), long(k), out.data());
        }
        if (bad >= 0) throw std::invalid_argument("NaN among the logits of row " + std::to_string(bad));
      },
      "logits"_a.noconvert(), "out"_a.noconvert());
}

void bind_round_columns(nb::module_& m) {
  m.def(
      "round_columns",
      [](Out<float, 2> weights, In<float, 2> target, In<float, 2> feedback, In<float, 1> scale, int inner, int highest,
         Out<std::int8_t, 2> levels) {
        const std::size_t columns = weights.shape(0), rows = weights.shape(1);
        need(target.shape(0) == columns && target.shape(1) == rows && feedback.shape(0) == columns &&
                 feedback.shape(1) == columns && scale.shape(0) == rows && levels.shape(0) == columns &&
                 levels.shape(1) == rows,
             "shapes differ");
        need(0 <= inner && inner < highest && highest <= 127, "levels do not fit in int8");
        const nb::gil_scoped_release release;
        twofold::round_columns(weights.data(), target.data(), feedback.data(), scale.data(), long(columns), long(rows), inner,
                               highest, levels.data());
      },
      "weights"_a.noconvert(), "target"_a.noconvert(), "feedback"_a.noconvert(), "scale"_a.noconvert(), "inner"_a,
      "highest"_a, "levels"_a.noconvert());
}

}  // namespace

void bind_ops(nb::module_& m) {
  bind_split_linear(m);
  bind_rows(m);
  bind_round_columns(m);
  m.def("isa", &twofold::isa, "The tier whose inner loops run (ValueError where TWOFOLD_CPU_ISA cannot be).");
  m.def("available_tiers", &twofold::available_tiers, "Tiers that this machine has, lowest first.");
  m.def("force_isa", &twofold::force_isa, "tier"_a, "Use this tier from now on; '' returns to the default choice.");
  m.def("set_threads", &twofold::set_threads, "n_threads"_a, "Threads that take part in an operation, the caller included.",
        nb::call_guard<nb::gil_scoped_release>());
  m.def("threads", &twofold::threads, nb::call_guard<nb::gil_scoped_release>());
}
