// The inner loops compiled for the avx2 tier of a machine with AVX-VNNI; see kernels.hpp.
#include "ops/table.hpp"

namespace twofold {

extern const Kernels kKernelsAvx2Vnni = kTable;

}  // namespace twofold
