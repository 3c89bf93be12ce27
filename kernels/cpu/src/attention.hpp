// Attention and writes of the KV cache over the thread pool; meanings as in kernels/naive.
#pragma once

#include <cstdint>

#include "attention_args.hpp"

namespace twofold {

// Rows first_row .. first_row + rows - 1 of those behind the committed text (slots 0 .. n_committed - 1), whose parents are
// given from row 0 on and checked by the caller, as is that the window is in the cache. window 0: none.
void attention_rows(const AttentionArgs& args, long rows, long first_row, long n_committed, const std::int32_t* parents,
                    long window);

// x [rows][x_stride], kv_heads * dim of each row used, to slots first_slot .. first_slot + rows - 1 of a cache.
// One row to one slot.
void kv_write_row(const float* x, long kv_heads, long dim, KvType type, long slot, std::uint8_t* cache);
void kv_write_rows(const float* x, long x_stride, long rows, long kv_heads, long dim, KvType type, long first_slot,
                   std::uint8_t* cache);

}  // namespace twofold
