#include "machine_build.hpp"

#ifndef TWOFOLD_COMMIT
#define TWOFOLD_COMMIT "unknown"
#endif

namespace twofold {

const char* build_commit() { return TWOFOLD_COMMIT; }

}  // namespace twofold
