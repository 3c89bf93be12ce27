// The split product of a run of tiles; how depends on the tier.
#pragma once

#if defined(__AVX2__)
#include "split_product_simd.hpp"
#else
#include "split_product_scalar.hpp"
#endif
