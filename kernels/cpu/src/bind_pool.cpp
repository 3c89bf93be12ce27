// The thread pool's set-up, for `doctor` and tests.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "cpu_share.hpp"
#include "thread_pool.hpp"

namespace nb = nanobind;
using namespace nb::literals;

void bind_pool(nb::module_& m) {
  m.def(
      "pool_state",
      [] {
        const twofold::PoolState state = twofold::pool_state();
        nb::dict result;
        result["threads"] = state.threads;
        result["crowded"] = state.crowded;
        result["pinned"] = state.pinned;
        return result;
      },
      "Threads, whether they outnumber CPUs or a quota (`crowded`), and the CPU of every pinned worker.");
  m.def(
      "cpu_share",
      [](std::vector<int> allowed, const std::string& root) {
        std::sort(allowed.begin(), allowed.end());
        const twofold::CpuShare share = twofold::cpu_share(allowed, root);
        nb::dict result;
        result["order"] = share.order;
        result["whole_cores"] = share.whole_cores;
        result["quota"] = share.quota;
        return result;
      },
      "allowed"_a, "root"_a = "",
      "The order in which allowed CPUs are used, whether they are whole cores, and the quota in CPUs (0: none).");
}
