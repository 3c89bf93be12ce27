#include "machine_cpuid.hpp"

#include <cstdlib>
#include <stdexcept>
#include <string>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#define TWOFOLD_X86 1
#endif

namespace twofold {
namespace {

constexpr std::uint64_t kYmmState = 0x6;          // XCR0: SSE | AVX
constexpr std::uint64_t kZmmState = 0xe0 | 0x6;   // XCR0: opmask | upper ZMM0-15 | ZMM16-31, over YMM
constexpr std::uint64_t kTileState = 0x3 << 17;   // XCR0: XTILECFG | XTILEDATA

constexpr const char* kNames[kTierCount] = {"generic", "avx2", "avx512", "avx512vbmi"};

#ifdef TWOFOLD_X86
bool bit(unsigned value, int position) { return ((value >> position) & 1u) != 0; }

std::uint64_t read_xcr0() {
  unsigned low = 0;
  unsigned high = 0;
  // Inline assembly, since the intrinsic would need -mxsave for this whole file.
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

CpuFeatures detect() {
  CpuFeatures found;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return found;
  found.fma = bit(c, 12);
  found.avx = bit(c, 28);
  found.f16c = bit(c, 29);
  if (bit(c, 27)) found.xcr0 = read_xcr0();  // OSXSAVE: without it xgetbv is an illegal instruction
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
    const unsigned leaves = a;
    found.avx2 = bit(b, 5);
    found.avx512f = bit(b, 16);
    found.avx512dq = bit(b, 17);
    found.avx512bw = bit(b, 30);
    found.avx512vl = bit(b, 31);
    found.avx512vbmi = bit(c, 1);
    found.avx512vnni = bit(c, 11);
    found.amx_int8 = bit(d, 25);
    if (leaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) {
      found.avx_vnni = bit(a, 4);
      found.avx512bf16 = bit(a, 5);
    }
  }
  found.ymm_state = (found.xcr0 & kYmmState) == kYmmState;
  found.zmm_state = (found.xcr0 & kZmmState) == kZmmState;
  found.amx_tile_state = (found.xcr0 & kTileState) == kTileState;
  return found;
}
#else
CpuFeatures detect() { return {}; }
#endif

Tier choose() {
  const Tier best = cpu_features().best();
  const char* wanted = std::getenv("TWOFOLD_CPU_ISA");
  if (wanted == nullptr || *wanted == '\0') return best;
  for (int i = 0; i < kTierCount; ++i) {
    if (std::string(wanted) != kNames[i]) continue;
    const Tier tier = static_cast<Tier>(i);
    if (cpu_features().supports(tier)) return tier;
    throw std::invalid_argument(std::string("TWOFOLD_CPU_ISA=") + wanted + ": this machine has at most " + tier_name(best));
  }
  throw std::invalid_argument(std::string("TWOFOLD_CPU_ISA=") + wanted + ": not one of generic, avx2, avx512, avx512vbmi");
}

}  // namespace

bool CpuFeatures::supports(Tier tier) const {
  const bool has_avx2 = avx && avx2 && fma && f16c && ymm_state;
  const bool has_avx512 = has_avx2 && avx512f && avx512bw && avx512dq && avx512vl && avx512vnni && zmm_state;
  switch (tier) {
    case Tier::generic:
      return true;
    case Tier::avx2:
      return has_avx2;
    case Tier::avx512:
      return has_avx512;
    case Tier::avx512vbmi:
      return has_avx512 && avx512vbmi;
  }
  return false;
}

Tier CpuFeatures::best() const {
  for (int i = kTierCount - 1; i > 0; --i) {
    if (supports(static_cast<Tier>(i))) return static_cast<Tier>(i);
  }
  return Tier::generic;
}

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

const char* tier_name(Tier tier) { return kNames[static_cast<int>(tier)]; }

Tier active_tier() {
  static const Tier tier = choose();  // a throw leaves it unset, so that the next call throws again
  return tier;
}

}  // namespace twofold
