// The inner loops compiled for the generic tier; see kernels.hpp.
#include "ops/table.hpp"

namespace twofold {

extern const Kernels kKernelsGeneric = kTable;

}  // namespace twofold
