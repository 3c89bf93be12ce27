// Which instruction sets this processor has *and* the operating system saves: CPUID and XCR0.
//
// A tier is a set of instructions that a kernel's translation unit may be compiled for. Tiers are ordered: each
// one contains those before it.
//   generic     the compiler's baseline for the architecture
//   avx2        AVX2, FMA, F16C; YMM state enabled in XCR0
//   avx512      avx2 and AVX-512 F, BW, DQ, VL, VNNI; opmask and ZMM state enabled in XCR0
//   avx512vbmi  avx512 and AVX-512 VBMI
#pragma once

#include <cstdint>

namespace twofold {

enum class Tier : int { generic = 0, avx2 = 1, avx512 = 2, avx512vbmi = 3 };
inline constexpr int kTierCount = 4;

// The CPUID bits of an instruction set, without regard to the operating system; `ymm_state` and `zmm_state` are XCR0's part.
struct CpuFeatures {
  bool avx = false;
  bool fma = false;
  bool f16c = false;
  bool avx2 = false;
  bool avx_vnni = false;
  bool avx512f = false;
  bool avx512bw = false;
  bool avx512dq = false;
  bool avx512vl = false;
  bool avx512vnni = false;
  bool avx512vbmi = false;
  bool avx512bf16 = false;
  bool amx_int8 = false;
  bool amx_tile_state = false;
  bool ymm_state = false;
  bool zmm_state = false;
  std::uint64_t xcr0 = 0;

  bool supports(Tier tier) const;
  Tier best() const;
};

// This processor's features, read once.
const CpuFeatures& cpu_features();

const char* tier_name(Tier tier);

// The tier that kernels dispatch to: the best one, or the lower one that `TWOFOLD_CPU_ISA` names (read once).
// Throws std::invalid_argument for a name that is no tier, or a tier that this machine does not have.
Tier active_tier();

}  // namespace twofold
