// Which CPUs the calling thread may use, which of them share a physical core, and how much of their time a quota grants.
#pragma once

#include <string>
#include <vector>

namespace twofold {

struct CpuShare {
  // Allowed CPUs: one of every physical core in ascending order, then the second of every core, and so on.
  std::vector<int> order;
  // Of each entry of `order`, the lowest CPU of its physical core.
  std::vector<int> core;
  // Whether every physical core is allowed with all of its CPUs (else somebody else may be given the other half).
  bool whole_cores = true;
  // CPUs' worth of time by the tightest cgroup quota of this process, 0 for none.
  double quota = 0;
};

// `allowed` in ascending order. Topology and control groups are read below `root` ("" for the machine's own).
CpuShare cpu_share(const std::vector<int>& allowed, const std::string& root = "");

// The affinity mask of the calling thread, in ascending order; empty where the system does not say.
std::vector<int> allowed_cpus();

}  // namespace twofold
