#include "dispatch.hpp"

#include <atomic>
#include <stdexcept>

#include "machine_cpuid.hpp"

namespace twofold {
namespace {

std::atomic<int> g_forced{-1};

Tier chosen_tier() {
  const int forced = g_forced.load(std::memory_order_relaxed);
  return forced < 0 ? active_tier() : static_cast<Tier>(forced);
}

bool has_tier(Tier tier) { return cpu_features().supports(tier); }

}  // namespace

const Kernels& kernels() {
#if defined(__x86_64__)
  switch (chosen_tier()) {
    case Tier::generic: return kKernelsGeneric;
    case Tier::avx2: return cpu_features().avx_vnni ? kKernelsAvx2Vnni : kKernelsAvx2;
    case Tier::avx512: return kKernelsAvx512;
    case Tier::avx512vbmi: return kKernelsAvx512Vbmi;
  }
#endif
  chosen_tier();  // a wrong TWOFOLD_CPU_ISA is an error here too
  return kKernelsGeneric;
}

std::string isa() { return tier_name(chosen_tier()); }

std::vector<std::string> available_tiers() {
  std::vector<std::string> names;
  for (int tier = 0; tier < kTierCount; ++tier) {
    if (has_tier(static_cast<Tier>(tier))) names.emplace_back(tier_name(static_cast<Tier>(tier)));
  }
  return names;
}

void force_isa(const std::string& name) {
  if (name.empty()) {
    g_forced = -1;
    return;
  }
  std::string listed;
  for (int tier = 0; tier < kTierCount; ++tier) {
    if (!has_tier(static_cast<Tier>(tier))) continue;
    if (name == tier_name(static_cast<Tier>(tier))) {
      g_forced = tier;
      return;
    }
    listed += std::string(listed.empty() ? "" : ", ") + tier_name(static_cast<Tier>(tier));
  }
  throw std::invalid_argument("no CPU tier '" + name + "' on this machine, which has " + listed);
}

}  // namespace twofold
