// What was built.
#pragma once

namespace twofold {

// The short commit hash of the sources, or "unknown" where they were no git checkout.
const char* build_commit();

}  // namespace twofold
