// The inner loops compiled for the avx512 tier; see kernels.hpp.
#include "ops/table.hpp"

namespace twofold {

extern const Kernels kKernelsAvx512 = kTable;

}  // namespace twofold
