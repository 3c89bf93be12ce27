// Machine facts that only native code can read: CPUID, XCR0, the build's commit, memory bandwidth.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <tuple>

#include "bound.hpp"
#include "dispatch.hpp"
#include "machine_bandwidth.hpp"
#include "machine_build.hpp"
#include "machine_cpuid.hpp"
#include "machine_peak.hpp"

namespace nb = nanobind;

namespace {

nb::dict features_dict() {
  const twofold::CpuFeatures& f = twofold::cpu_features();
  nb::dict flags;
  flags["avx"] = f.avx;
  flags["fma"] = f.fma;
  flags["f16c"] = f.f16c;
  flags["avx2"] = f.avx2;
  flags["avx_vnni"] = f.avx_vnni;
  flags["avx512f"] = f.avx512f;
  flags["avx512bw"] = f.avx512bw;
  flags["avx512dq"] = f.avx512dq;
  flags["avx512vl"] = f.avx512vl;
  flags["avx512_vnni"] = f.avx512vnni;
  flags["avx512vbmi"] = f.avx512vbmi;
  flags["avx512_bf16"] = f.avx512bf16;
  flags["amx_int8"] = f.amx_int8;
  nb::list tiers;
  for (int i = 0; i < twofold::kTierCount; ++i) {
    const auto tier = static_cast<twofold::Tier>(i);
    if (f.supports(tier)) tiers.append(twofold::tier_name(tier));
  }
  nb::dict result;
  result["flags"] = flags;
  result["ymm_state"] = f.ymm_state;
  result["zmm_state"] = f.zmm_state;
  result["tile_state"] = f.amx_tile_state;
  result["tiers"] = tiers;
  return result;
}

nb::dict multiply_instructions() {
  const twofold::Kernels& k = twofold::kernels();
  nb::dict found;
  found["pairs"] = k.pairs.instruction;
  if (k.bytes.run != nullptr) found["bytes"] = k.bytes.instruction;
  return found;
}

std::tuple<double, std::int64_t, std::uint32_t> multiply_adds(const std::string& kind, long chunks, long repetitions,
                                                              int weight, int activation) {
  need(weight >= 0 && weight <= 255 && activation >= -128 && activation <= 127, "an operand does not fit its byte");
  const nb::gil_scoped_release unlocked;
  const twofold::PeakSample found = twofold::multiply_adds(kind, chunks, repetitions, weight, activation);
  return {found.seconds, found.multiply_adds, found.checksum};
}

std::tuple<double, double> sweep_products(const std::vector<nb::object>& linears, In<float, 2> x, bool use_residual,
                                          Out<float, 2> out) {
  need(!linears.empty() && x.shape(0) > 0, "at least one Linear and one row");
  std::vector<const twofold::SplitLinear*> views;
  for (const nb::object& linear : linears) views.push_back(&nb::cast<BoundSplitLinear&>(linear).view);
  const twofold::SplitLinear& first = *views.front();
  for (const twofold::SplitLinear* w : views) {
    need(w->in_features == first.in_features && w->out_features == first.out_features && w->group_size == first.group_size &&
             w->base_planes == first.base_planes && w->residual_planes == first.residual_planes,
         "Linears of one shape and format");
    need(twofold::writes_directly(*w), "Linears in whole tiles that rotate no outputs and add no bias");
  }
  need(x.shape(1) == static_cast<std::size_t>(first.in_features), "x does not fit the Linears");
  need(out.shape(0) == x.shape(0) && out.shape(1) == static_cast<std::size_t>(first.out_features), "out does not fit");
  const long rows = static_cast<long>(x.shape(0));
  const nb::gil_scoped_release unlocked;
  const twofold::SweepSeconds found = twofold::sweep_products(views, x.data(), rows, use_residual, out.data());
  return {found.prepare, found.products};
}

}  // namespace

void bind_machine(nb::module_& m) {
  m.def("cpu_features", &features_dict,
        "CPUID flags, the register state that the operating system saves (XCR0), and the kernel tiers both allow.");
  m.def("active_tier", [] { return twofold::tier_name(twofold::active_tier()); },
        "The tier that kernels use: the best one, or the one that TWOFOLD_CPU_ISA names (ValueError where it cannot be).");
  m.def("build_commit", [] { return twofold::build_commit(); }, "The commit that was built, or 'unknown'.");

  using twofold::ReadMeter;
  nb::class_<ReadMeter>(m, "ReadMeter", "Memory read bandwidth: one sequential band per pinned thread.")
      .def(nb::init<std::size_t, std::vector<int>>(), nb::arg("bytes"), nb::arg("cpus"),
           nb::call_guard<nb::gil_scoped_release>())
      .def("sample", &ReadMeter::sample, nb::call_guard<nb::gil_scoped_release>(),
           "Read the whole set once; seconds from the first thread's start to the last one's end.")
      .def_prop_ro("bytes", &ReadMeter::bytes)
      .def_prop_ro("pinned", &ReadMeter::pinned)
      .def_prop_ro("checksum", &ReadMeter::checksum)
      .def_prop_ro("expected_checksum", &ReadMeter::expected_checksum);

  m.def("multiply_instructions", &multiply_instructions,
        "What the tier in force multiplies with: `pairs` of 16-bit integers, and `bytes` where it can.");
  m.def("multiply_adds", &multiply_adds, nb::arg("kind"), nb::arg("chunks"), nb::arg("repetitions"), nb::arg("weight"),
        nb::arg("activation"),
        "Multiply-adds alone, over the pool where there are several chunks: (seconds, their number, the sum of all "
        "products modulo 2**32).");
  m.def("sweep_products", &sweep_products, nb::arg("linears"), nb::arg("x"), nb::arg("use_residual"), nb::arg("out"),
        "Products alone of Linears of one shape, one after the other: seconds for rotating and quantising x once, and for "
        "the products; `out` keeps the last one.");
}
