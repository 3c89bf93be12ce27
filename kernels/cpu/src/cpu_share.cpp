#include "cpu_share.hpp"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

namespace twofold {
namespace {

constexpr int kMostCpus = 8192;  // no mask of a running system is wider

std::string line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "0-2,8" as numbers; nothing where the text is no such list.
std::vector<int> parse_list(const std::string& text) {
  std::vector<int> found;
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    int first = -1, last = -1;
    const int n = std::sscanf(part.c_str(), "%d-%d", &first, &last);
    if (n == 1) last = first;
    if (n < 1 || first < 0 || last < first || last >= kMostCpus) return {};
    for (int cpu = first; cpu <= last; ++cpu) found.push_back(cpu);
  }
  return found;
}

std::vector<int> siblings(const std::string& root, int cpu) {
  const std::string folder = root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
  std::vector<int> found = parse_list(line_of(folder + "thread_siblings_list"));
  if (std::find(found.begin(), found.end(), cpu) == found.end()) found = {cpu};
  std::sort(found.begin(), found.end());
  return found;
}

double ratio(const std::string& quota, const std::string& period) {
  const double allowed = std::atof(quota.c_str()), of = std::atof(period.c_str());  // "max" and -1 are no limit
  return allowed > 0 && of > 0 ? allowed / of : 0;
}

double quota_of_group(const std::string& folder, bool v2) {
  if (!v2) return ratio(line_of(folder + "/cpu.cfs_quota_us"), line_of(folder + "/cpu.cfs_period_us"));
  std::string quota, period;
  std::stringstream(line_of(folder + "/cpu.max")) >> quota >> period;
  return ratio(quota, period);
}

// Where a hierarchy with the cpu controller is mounted: its folder, and the group that is its root there.
struct Mount {
  std::string folder, group;
  bool v2;
};

std::vector<Mount> cpu_mounts(const std::string& root) {
  std::vector<Mount> found;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t mark = line.find(" - ");
    if (mark == std::string::npos) continue;
    std::string skipped, group, folder, kind, options;
    std::stringstream(line.substr(0, mark)) >> skipped >> skipped >> skipped >> group >> folder;
    std::stringstream right(line.substr(mark + 3));
    right >> kind;
    while (right >> options) {
    }
    const bool is_cpu = ("," + options + ",").find(",cpu,") != std::string::npos;
    if (kind == "cgroup2" || (kind == "cgroup" && is_cpu)) found.push_back({folder, group, kind == "cgroup2"});
  }
  return found;
}

// The tightest quota of the process's group and its ancestors, in both versions of the interface.
double tightest_quota(const std::string& root) {
  double tightest = 0;
  const std::vector<Mount> mounts = cpu_mounts(root);
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    std::string path = line.substr(second + 1);
    for (const Mount& mount : mounts) {
      if (mount.v2 ? controllers != ",," : controllers.find(",cpu,") == std::string::npos) continue;
      std::string below = path;
      if (mount.group != "/") {
        const bool inside = path.compare(0, mount.group.size(), mount.group) == 0;
        below = inside ? path.substr(mount.group.size()) : "";  // a foreign namespace: the mount itself
      }
      for (;;) {
        const double quota = quota_of_group(root + mount.folder + below, mount.v2);
        if (quota > 0 && (tightest == 0 || quota < tightest)) tightest = quota;
        const std::size_t slash = below.rfind('/');
        if (below.empty() || below == "/" || slash == std::string::npos) break;
        below.resize(slash);
      }
    }
  }
  return tightest;
}

}  // namespace

CpuShare cpu_share(const std::vector<int>& allowed, const std::string& root) {
  CpuShare share;
  std::map<int, std::vector<int>> cores;  // lowest CPU of a physical core: its allowed CPUs
  for (const int cpu : allowed) {
    const std::vector<int> group = siblings(root, cpu);
    cores[group.front()].push_back(cpu);
    for (const int sibling : group) {
      if (!std::binary_search(allowed.begin(), allowed.end(), sibling)) share.whole_cores = false;
    }
  }
  for (std::size_t round = 0; share.order.size() < allowed.size(); ++round) {
    for (const auto& [core, cpus] : cores) {
      if (round >= cpus.size()) continue;
      share.order.push_back(cpus[round]);
      share.core.push_back(core);
    }
  }
  share.quota = tightest_quota(root);
  return share;
}

std::vector<int> allowed_cpus() {
  std::vector<int> found;
#if defined(__linux__)
  // A kernel that knows more CPUs than cpu_set_t refuses the short mask.
  for (int n = CPU_SETSIZE; n <= kMostCpus; n *= 2) {
    cpu_set_t* set = CPU_ALLOC(n);
    const bool told = sched_getaffinity(0, CPU_ALLOC_SIZE(n), set) == 0;
    for (int cpu = 0; told && cpu < n; ++cpu) {
      if (CPU_ISSET_S(cpu, CPU_ALLOC_SIZE(n), set)) found.push_back(cpu);
    }
    CPU_FREE(set);
    if (told) break;
  }
#endif
  return found;
}

}  // namespace twofold
