// The native module: each subject binds its own functions in its own file.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_attention(nb::module_& m);
void bind_machine(nb::module_& m);
void bind_maps(nb::module_& m);
void bind_ops(nb::module_& m);
void bind_pool(nb::module_& m);
void bind_tape(nb::module_& m);

NB_MODULE(_cpu, m) {
  // What is alive when the interpreter ends (an engine in a global) goes with the process; nobody wants to read about it.
  nb::set_leak_warnings(false);
  m.doc() = "twofold's native CPU kernels and machine probes";
  bind_machine(m);
  bind_maps(m);
  bind_ops(m);
  bind_pool(m);
  bind_tape(m);
  bind_attention(m);
}
