// The inner loops compiled for the avx512vbmi tier; see kernels.hpp.
#include "ops/table.hpp"

namespace twofold {

extern const Kernels kKernelsAvx512Vbmi = kTable;

}  // namespace twofold
