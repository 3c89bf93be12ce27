// Machine facts that only native code can read: CPUID, XCR0, the build's commit, memory bandwidth.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "machine_bandwidth.hpp"
#include "machine_build.hpp"
#include "machine_cpuid.hpp"

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
}
