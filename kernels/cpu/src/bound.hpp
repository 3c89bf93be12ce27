// What the files that bind operations share: array types, the check, and a split Linear with what keeps it alive.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <stdexcept>
#include <vector>

#include "split_linear.hpp"

template <class T, int N>
using In = nanobind::ndarray<const T, nanobind::ndim<N>, nanobind::c_contig, nanobind::device::cpu>;
template <class T, int N>
using Out = nanobind::ndarray<T, nanobind::ndim<N>, nanobind::c_contig, nanobind::device::cpu>;

inline void need(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(what);
}

// The view that the kernels use, and the arrays that keep it alive.
struct BoundSplitLinear {
  twofold::SplitLinear view{};
  std::vector<nanobind::object> owners;

  template <class T, int N>
  const T* keep(const In<T, N>& array) {
    owners.push_back(nanobind::cast(array));
    return array.data();
  }
};
