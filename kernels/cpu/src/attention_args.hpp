// What attention over the KV cache reads and where its parts go; docs/numerics.md defines it, kernels/naive/attention.py is it.
#pragma once

#include <cstdint>

namespace twofold {

// f16, or ggml's blocks of 32 values under an fp16 scale.
enum class KvType : int { f16 = 0, q8_0 = 1, q4_0 = 2 };

constexpr long kKvBlock = 32;
constexpr long kAttentionChunk = 128;  // positions of one part
constexpr long kMostPositions = 1L << 62;  // of a text: sums of positions and rows stay in 64 bits
constexpr long kMaxQueries = 32;       // (row, head) pairs of one KV head that share one sweep over its cache

inline constexpr long kv_blocks(long dim) { return (dim + kKvBlock - 1) / kKvBlock; }
inline constexpr long kv_block_bytes(KvType type) { return type == KvType::q8_0 ? 34 : 18; }
// One head's vector.
inline constexpr long kv_head_bytes(KvType type, long dim) {
  return type == KvType::f16 ? 2 * dim : kv_blocks(dim) * kv_block_bytes(type);
}

// K or V of a layer: [slots][kv_heads] vectors of `dim` values.
struct KvCacheView {
  const std::uint8_t* data;
  KvType type;
  long dim;
};

struct AttentionArgs {
  const float* q;  // [rows][q_stride], heads * k.dim of each row used
  long q_stride;
  KvCacheView k, v;
  float* out;  // [rows][out_stride], heads * v.dim of each row written
  long out_stride;
  long heads, kv_heads;
  float scale;
  long first_position;  // of slot 0
};

// What one row of the pass sees: positions first .. end - 1. Position p < straight_end is in slot p - first_position, the
// others in `path`.
struct VisibleRow {
  long first, straight_end, end;
  const std::int64_t* path;
};

// A query as the type of K wants it: fp32, or int16 of two planes and what one step of it is worth; zeros behind `dim`.
inline constexpr long query_floats(KvType type, long dim) {
  return type == KvType::f16 ? (dim + 15) / 16 * 16 : kv_blocks(dim) * kKvBlock / 2 + 1;
}
// Highest score, sum of weights, sums over values (padded).
inline constexpr long part_floats(long v_dim) { return 2 + kv_blocks(v_dim) * kKvBlock; }

// One chunk for queries begin .. end - 1 of a KV head; query i is row i / (heads / kv_heads).
struct AttentionTask {
  long kv_head, begin, end, chunk;
  const VisibleRow* rows;
  const float* queries;  // [rows][heads][query_floats]
  float* scratch;        // attention_scratch()
  float* parts;          // of query i at part_stride * (i - begin), for rows that see this chunk
  long part_stride;
};

inline constexpr long kScoreStride = kAttentionChunk + 16;
// Scores of all queries, and a decoded tile of the cache.
inline constexpr long attention_scratch(long k_dim, long v_dim) {
  return kMaxQueries * kScoreStride + 16 * kv_blocks(k_dim > v_dim ? k_dim : v_dim) * kKvBlock;
}

}  // namespace twofold
