// Which tier's inner loops run: the machine's best, the one that TWOFOLD_CPU_ISA names, or the one that a test forces.
#pragma once

#include <string>
#include <vector>

#include "kernels.hpp"

namespace twofold {

// Throws std::invalid_argument where TWOFOLD_CPU_ISA names a tier that this machine does not have.
const Kernels& kernels();
std::string isa();

std::vector<std::string> available_tiers();

// Use the named tier from now on; an empty name returns to the default choice. Throws std::invalid_argument for a name that
// is not among available_tiers().
void force_isa(const std::string& name);

}  // namespace twofold
