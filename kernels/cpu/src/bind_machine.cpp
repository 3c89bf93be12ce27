// Machine facts that only native code can read: CPUID, XCR0, memory bandwidth.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_machine(nb::module_&) {}
