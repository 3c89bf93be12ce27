// Guards of mapped files.
#include <nanobind/nanobind.h>

#include "map_guard.hpp"

namespace nb = nanobind;
using namespace nb::literals;

void bind_maps(nb::module_& m) {
  nb::class_<twofold::MapGuard>(m, "MapGuard", "Makes a map whose file became shorter read as zeros, and tells.")
      .def(
          "__init__",
          [](twofold::MapGuard* self, nb::object map, int descriptor) {
            Py_buffer view;
            if (PyObject_GetBuffer(map.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
            const auto address = reinterpret_cast<std::uintptr_t>(view.buf);
            const auto size = static_cast<std::size_t>(view.len);
            PyBuffer_Release(&view);
            new (self) twofold::MapGuard(address, size, descriptor);
          },
          "map"_a, "descriptor"_a, "Guard the memory of `map`, which must stay mapped as long as the guard lives.")
      .def("faults", &twofold::MapGuard::faults)
      .def("intact", &twofold::MapGuard::intact)
      .def("unchanged", &twofold::MapGuard::unchanged);
  m.def(
      "all_intact",
      [](const nb::list& guards) {
        for (nb::handle guard : guards) {
          if (!nb::cast<const twofold::MapGuard&>(guard).intact()) return false;
        }
        return true;
      },
      "guards"_a, "Whether every one of a list of guards is intact.");
}
