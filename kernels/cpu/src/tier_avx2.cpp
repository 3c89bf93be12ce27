// The inner loops compiled for the avx2 tier; see kernels.hpp.
#include "ops/table.hpp"

namespace twofold {

extern const Kernels kKernelsAvx2 = kTable;

}  // namespace twofold
