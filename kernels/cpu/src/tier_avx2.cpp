// The inner loops compiled for the avx2 tier; see kernels.hpp.
#include "kernels.hpp"
#include "ops/attention.hpp"
#include "ops/elementwise.hpp"
#include "ops/quantize.hpp"
#include "ops/rms_norm.hpp"
#include "ops/rotate.hpp"
#include "ops/round_columns.hpp"
#include "ops/split_product.hpp"

namespace twofold {

extern const Kernels kKernelsAvx2 = {rms_norm, rotate, unrotate, quantize, product,   rope,
                                   silu_mul, gelu_mul, add,    embed,    argmax,   attention_query,
                                   attention_chunk, attention_join, attention_close, kv_write, round_columns};

}  // namespace twofold
