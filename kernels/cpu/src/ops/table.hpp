// All inner loops of the tier that includes this; see kernels.hpp.
#pragma once

#include "../kernels.hpp"
#include "attention.hpp"
#include "elementwise.hpp"
#include "integer_peak.hpp"
#include "quantize.hpp"
#include "rms_norm.hpp"
#include "rotate.hpp"
#include "round_columns.hpp"
#include "softmax_total.hpp"
#include "split_product.hpp"

namespace twofold {
namespace {

constexpr Kernels kTable = {
    rms_norm,        rotate,         unrotate,        quantize, product,      rope, silu_mul, gelu_mul, add, embed, argmax,
    softmax_total,   attention_query, attention_chunk, attention_join,  attention_close, kv_write, round_columns,
    kPairs,          kBytes};

}  // namespace
}  // namespace twofold
