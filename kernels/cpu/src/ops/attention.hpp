// Attention of a few queries of one KV head over one chunk of its cache, and the joining of chunks.
#pragma once

#include "attention_tiles.hpp"
#include "exponential.hpp"
#include "quantize.hpp"

namespace twofold {
namespace {

void attention_query(const float* q, long dim, KvType type, float* out, float* scratch) {
  if (type == KvType::f16) {
    for (long i = 0; i < query_floats(type, dim); ++i) out[i] = i < dim ? q[i] : 0.0f;
    return;
  }
  const long padded = kv_blocks(dim) * kKvBlock;
  rotate_head(q, dim, scratch);
  bool finite = true;
  const float scale = scale_of(scratch, dim, finite);
  std::int16_t* t = reinterpret_cast<std::int16_t*>(out);
  for (long i = 0; i < padded; ++i) {
    t[i] = static_cast<std::int16_t>(finite ? combined_planes(scratch[i], scale) : 0);
  }
  out[padded / 2] = finite ? scale / 254.0f : __builtin_nanf("");
}

// scores[h][t] = Sum16(q[h] . k_t) * scale for eight positions.
template <int Heads, class Keys>
void half_scores(const Keys& keys, const float* const* q, long dim, float scale, float* const* scores) {
#if defined(__AVX2__)
  __m256 eight[Heads][kKeys];
#endif
  for (long t = 0; t < kKeys; ++t) {
    F16v lanes[Heads]{};
    for (long i = 0; i < dim; i += 16) {
      const F16v key = Keys::load(keys, t, i);
      for (int h = 0; h < Heads; ++h) add_to(lanes[h], load16(q[h] + i) * key);
    }
#if defined(__AVX2__)
    for (int h = 0; h < Heads; ++h) eight[h][t] = fold8(lanes[h]);
#else
    for (int h = 0; h < Heads; ++h) scores[h][t] = sum_lanes(lanes[h]) * scale;
#endif
  }
#if defined(__AVX2__)
  const __m256 factor = _mm256_set1_ps(scale);
  for (int h = 0; h < Heads; ++h) _mm256_storeu_ps(scores[h], _mm256_mul_ps(tree8<AddFloats>(eight[h]), factor));
#endif
}

// scores[h][t] = ((sum over blocks of fp32(t[h] . codes_t) * d_t) * unit[h]) * scale for eight positions.
template <int Heads, class Keys>
void integer_scores(const Keys& keys, const std::uint8_t* const* at, long block_bytes, const float* const* q, long blocks,
                    float scale, float* const* scores) {
  F8 total[Heads]{};
  for (long block = 0; block < blocks; ++block) {
    const F8 d = block_scales(at, block * block_bytes);
#if defined(__AVX2__)
    __m256 eight[Heads][kKeys];
    for (long t = 0; t < kKeys; ++t) {
      const __m256i low = reinterpret_cast<__m256i>(Keys::words(keys, t, block * kKvBlock));
      const __m256i high = reinterpret_cast<__m256i>(Keys::words(keys, t, block * kKvBlock + 16));
      for (int h = 0; h < Heads; ++h) {
        const __m256i* x = reinterpret_cast<const __m256i*>(reinterpret_cast<const std::int16_t*>(q[h]) + block * kKvBlock);
        const __m256i sum =
            _mm256_add_epi32(_mm256_madd_epi16(_mm256_loadu_si256(x), low), _mm256_madd_epi16(_mm256_loadu_si256(x + 1), high));
        eight[h][t] = _mm256_castsi256_ps(sum);
      }
    }
    for (int h = 0; h < Heads; ++h) {
      const __m256i sums = _mm256_castps_si256(tree8<AddIntegers>(eight[h]));
      total[h] = total[h] + reinterpret_cast<F8>(_mm256_cvtepi32_ps(sums)) * d;
    }
#else
    for (long t = 0; t < kKeys; ++t) {
      const Words low = Keys::words(keys, t, block * kKvBlock), high = Keys::words(keys, t, block * kKvBlock + 16);
      for (int h = 0; h < Heads; ++h) {
        const std::int16_t* x = reinterpret_cast<const std::int16_t*>(q[h]) + block * kKvBlock;
        std::int32_t sum = 0;
        for (int i = 0; i < 16; ++i) sum += std::int32_t{x[i]} * low[i] + std::int32_t{x[16 + i]} * high[i];
        total[h][t] = total[h][t] + static_cast<float>(sum) * d[t];
      }
    }
#endif
  }
  for (int h = 0; h < Heads; ++h) {
    const F8 found = (total[h] * q[h][blocks * kKvBlock / 2]) * scale;
    __builtin_memcpy(scores[h], &found, sizeof found);
  }
}

// sums[h] += weights[h][t] * v_t for `Wide` sixteens of the vectors from `i` on.
template <int Heads, int Wide, class Values>
TWOFOLD_INLINE void add_sixteens(const Values& values, long n, long i, const float* const* weights, float* const* sums) {
  F16v lanes[Heads][Wide];
  for (int h = 0; h < Heads; ++h) {
    for (int w = 0; w < Wide; ++w) lanes[h][w] = load16(sums[h] + i + 16 * w);
  }
  for (long t = 0; t < n; ++t) {
    F16v value[Wide];
    for (int w = 0; w < Wide; ++w) value[w] = Values::load(values, t, i + 16 * w);
    for (int h = 0; h < Heads; ++h) {
      const float weight = weights[h][t];
      for (int w = 0; w < Wide; ++w) add_to(lanes[h][w], weight * value[w]);
    }
  }
  for (int h = 0; h < Heads; ++h) {
    for (int w = 0; w < Wide; ++w) store16(lanes[h][w], sums[h] + i + 16 * w);
  }
}

// The same for all from begin to end, whole sixteens of the vector; t ascends from 0 to n - 1.
template <int Heads, class Values>
void add_values(const Values& values, long n, long begin, long end, const float* const* weights, float* const* sums) {
  constexpr int kWide = Heads <= 2 ? 2 : 1;  // what the registers of AVX2 hold
  long i = begin;
  for (; i + 16 * kWide <= end; i += 16 * kWide) add_sixteens<Heads, kWide>(values, n, i, weights, sums);
  for (; i < end; i += 16) add_sixteens<Heads, 1>(values, n, i, weights, sums);
}

// The same for codes: their weights are weights[h][t] * d_t, block by block.
template <int Heads, class Values>
void add_blocks(const Values& values, const std::uint8_t* const* at, long block_bytes, long n, long blocks,
                const float* const* weights, float* const* sums) {
  for (long block = 0; block < blocks; ++block) {
    float scaled[Heads][kValues];
    const float* pointers[Heads];
    for (long part = 0; part < kValues; part += 8) {
      const F8 d = block_scales(at + part, block * block_bytes);
      for (int h = 0; h < Heads; ++h) {
        F8 w;
        __builtin_memcpy(&w, weights[h] + part, sizeof w);
        w = w * d;
        __builtin_memcpy(scaled[h] + part, &w, sizeof w);
      }
    }
    for (int h = 0; h < Heads; ++h) pointers[h] = scaled[h];
    add_values<Heads>(values, n, block * kKvBlock, (block + 1) * kKvBlock, pointers, sums);
  }
}

// body<Heads>(first) for 1 to 4 queries at a time.
#define TWOFOLD_BY_FOURS(count, call)            \
  for (long first = 0; first < (count); first += 4) {        \
    switch ((count) - first) {                   \
      case 1: call(1); break;                    \
      case 2: call(2); break;                    \
      case 3: call(3); break;                    \
      default: call(4); break;                   \
    }                                            \
  }

// Queries that share positions, the same number of pointers for each purpose.
struct Queries {
  long count;
  const float* q[kMaxQueries];
  float* scores[kMaxQueries];  // of the chunk's position 0; weights after the softmax
  float* sums[kMaxQueries];
};

void addresses(const KvCacheView& cache, long kv_heads, long kv_head, const VisibleRow& row, long first_position, long begin,
               long n, long capacity, const std::uint8_t** at) {
  const long bytes = kv_head_bytes(cache.type, cache.dim);
  for (long t = 0; t < capacity; ++t) {
    const long position = begin + (t < n ? t : n - 1);  // behind the end the last one again: read, but not used
    const long slot = position < row.straight_end ? position - first_position : row.path[position - row.straight_end];
    at[t] = cache.data + (slot * kv_heads + kv_head) * bytes;
  }
}

// Fetches a KV head's vectors of the positions begin .. end - 1 that lie in slots in order: they lie apart by all heads', too far
// for what a processor fetches by itself, and are cold behind a layer's weights (a chunk's first head took twice as long).
TWOFOLD_INLINE void fetch(const KvCacheView& cache, long kv_heads, long kv_head, long first_position, long begin, long end) {
  const long bytes = kv_head_bytes(cache.type, cache.dim), apart = kv_heads * bytes;
  const std::uint8_t* at = cache.data + ((begin - first_position) * kv_heads + kv_head) * bytes;
  for (long p = begin; p < end; ++p, at += apart) {
    for (long i = 0; i < bytes; i += 64) __builtin_prefetch(at + i, 0, 2);
    __builtin_prefetch(at + bytes - 1, 0, 2);
  }
}

// Positions begin .. end - 1, as `row` finds them.
void score_positions(const AttentionArgs& args, const AttentionTask& task, const VisibleRow& row, long begin, long end,
                     const Queries& queries, float* tile) {
  const KvType type = args.k.type;
  const long dim = args.k.dim, blocks = kv_blocks(dim), bytes = kv_block_bytes(type);
  for (long p = begin; p < end; p += kKeys) {
    const std::uint8_t* at[kKeys];
    const long n = end - p < kKeys ? end - p : kKeys;
    addresses(args.k, args.kv_heads, task.kv_head, row, args.first_position, p, n, kKeys, at);
    float* scores[kMaxQueries];
    for (long i = 0; i < queries.count; ++i) scores[i] = queries.scores[i] + (p - task.chunk * kAttentionChunk);
    const bool decode = queries.count > 4;
#define TWOFOLD_HALF(N) half_scores<N>(keys, queries.q + first, dim, args.scale, scores + first)
#define TWOFOLD_CODES(N) integer_scores<N>(keys, at, bytes, queries.q + first, blocks, args.scale, scores + first)
    if (type == KvType::f16 && decode) {
      const DecodedFloats keys = decode_floats(HalfVectors{at, dim}, n, dim, tile);
      TWOFOLD_BY_FOURS(queries.count, TWOFOLD_HALF)
    } else if (type == KvType::f16) {
      const HalfVectors keys{at, dim};
      TWOFOLD_BY_FOURS(queries.count, TWOFOLD_HALF)
    } else if (decode) {
      const DecodedWords keys = type == KvType::q8_0 ? decode_words(Q8Vectors{at}, kKeys, blocks, tile)
                                                     : decode_words(Q4Vectors{at}, kKeys, blocks, tile);
      TWOFOLD_BY_FOURS(queries.count, TWOFOLD_CODES)
    } else if (type == KvType::q8_0) {
      const Q8Vectors keys{at};
      TWOFOLD_BY_FOURS(queries.count, TWOFOLD_CODES)
    } else {
      const Q4Vectors keys{at};
      TWOFOLD_BY_FOURS(queries.count, TWOFOLD_CODES)
    }
#undef TWOFOLD_HALF
#undef TWOFOLD_CODES
  }
}

void add_positions(const AttentionArgs& args, const AttentionTask& task, const VisibleRow& row, long begin, long end,
                   const Queries& queries, float* tile) {
  const KvType type = args.v.type;
  const long dim = args.v.dim, blocks = kv_blocks(dim), bytes = kv_block_bytes(type);
  for (long p = begin; p < end; p += kValues) {
    const std::uint8_t* at[kValues];
    const long n = end - p < kValues ? end - p : kValues;
    addresses(args.v, args.kv_heads, task.kv_head, row, args.first_position, p, n, kValues, at);
    const float* weights[kMaxQueries];
    for (long i = 0; i < queries.count; ++i) weights[i] = queries.scores[i] + (p - task.chunk * kAttentionChunk);
    const bool decode = queries.count > 4;
#define TWOFOLD_HALF(N) add_values<N>(values, n, 0, dim, weights + first, queries.sums + first)
#define TWOFOLD_CODES(N) add_blocks<N>(values, at, bytes, n, blocks, weights + first, queries.sums + first)
    if (type == KvType::f16 && decode) {
      const DecodedFloats values = decode_floats(HalfVectors{at, dim}, n, dim, tile);
      TWOFOLD_BY_FOURS(queries.count, TWOFOLD_HALF)
    } else if (type == KvType::f16) {
      const HalfVectors values{at, dim};
      TWOFOLD_BY_FOURS(queries.count, TWOFOLD_HALF)
    } else if (decode) {
      const DecodedFloats values = type == KvType::q8_0 ? decode_floats(Q8Vectors{at}, n, blocks * kKvBlock, tile)
                                                        : decode_floats(Q4Vectors{at}, n, blocks * kKvBlock, tile);
      TWOFOLD_BY_FOURS(queries.count, TWOFOLD_CODES)
    } else if (type == KvType::q8_0) {
      const Q8Vectors values{at};
      TWOFOLD_BY_FOURS(queries.count, TWOFOLD_CODES)
    } else {
      const Q4Vectors values{at};
      TWOFOLD_BY_FOURS(queries.count, TWOFOLD_CODES)
    }
#undef TWOFOLD_HALF
#undef TWOFOLD_CODES
  }
}

// Scores begin .. end - 1 of a chunk to exp(score - highest), zeros around them up to whole sixteens; part: highest, Sum16.
TWOFOLD_INLINE void softmax_weights(float* scores, long begin, long end, float* part) {
  float highest = scores[begin];
  int nan = 0;
  for (long j = begin; j < end; ++j) {
    nan |= scores[j] != scores[j];
    highest = scores[j] > highest ? scores[j] : highest;
  }
  if (nan != 0) highest = __builtin_nanf("");
  for (long j = begin; j < end; ++j) scores[j] = exp_nonpositive(scores[j] - highest);
  const long from = begin / 16 * 16, to = (end + 15) / 16 * 16;
  for (long j = from; j < begin; ++j) scores[j] = 0.0f;
  for (long j = end; j < to; ++j) scores[j] = 0.0f;
  F16v lanes = zero16();
  for (long j = from; j < to; j += 16) add_to(lanes, load16(scores + j));
  part[0] = highest;
  part[1] = sum_lanes(lanes);
}

// One row's queries, and where its positions in the chunk begin and end.
struct RowQueries {
  long row, query, count, begin, end;
};

// The rows that see the chunk; returns how many, and the positions that all of them find in the same slots.
TWOFOLD_INLINE long rows_of_task(const AttentionArgs& args, const AttentionTask& task, RowQueries* found, long* begin,
                                 long* end) {
  const long group = args.heads / args.kv_heads, from = task.chunk * kAttentionChunk, to = from + kAttentionChunk;
  long n = 0;
  *begin = from, *end = to;
  for (long query = task.begin; query < task.end;) {
    const long row = query / group, next = (row + 1) * group < task.end ? (row + 1) * group : task.end;
    const VisibleRow& view = task.rows[row];
    const RowQueries one{row, query, next - query, view.first > from ? view.first : from, view.end < to ? view.end : to};
    query = next;
    if (one.begin >= one.end) continue;
    found[n++] = one;
    *begin = one.begin > *begin ? one.begin : *begin;
    const long straight = view.straight_end < one.end ? view.straight_end : one.end;
    *end = straight < *end ? straight : *end;
  }
  if (*end <= *begin) *begin = *end = to;  // nothing in common: each row on its own, all of it "before"
  return n;
}

void attention_chunk(const AttentionArgs& args, const AttentionTask& task) {
  RowQueries rows[kMaxQueries];
  long shared_begin, shared_end;
  const long n_rows = rows_of_task(args, task, rows, &shared_begin, &shared_end);
  if (n_rows == 0) return;
  const long group = args.heads / args.kv_heads, floats = query_floats(args.k.type, args.k.dim);
  float* tile = task.scratch + kMaxQueries * kScoreStride;
  Queries all;
  all.count = 0;
  long first_of[kMaxQueries];
  for (long r = 0; r < n_rows; ++r) {
    first_of[r] = all.count;
    for (long i = 0; i < rows[r].count; ++i) {
      const long query = rows[r].query + i, head = task.kv_head * group + query % group;
      float* part = task.parts + (query - task.begin) * task.part_stride;
      for (long k = 0; k < part_floats(args.v.dim); ++k) part[k] = 0.0f;
      all.q[all.count] = task.queries + (rows[r].row * args.heads + head) * floats;
      all.scores[all.count] = task.scratch + all.count * kScoreStride;
      all.sums[all.count++] = part + 2;
    }
  }
  const auto own = [&](long r) {
    Queries one;
    one.count = rows[r].count;
    for (long i = 0; i < one.count; ++i) {
      one.q[i] = all.q[first_of[r] + i], one.scores[i] = all.scores[first_of[r] + i], one.sums[i] = all.sums[first_of[r] + i];
    }
    return one;
  };
  // before, shared, behind: the order that values add up in, and each step overwrites what the last stored too far
  const auto sweep = [&](auto step) {
    for (long r = 0; r < n_rows; ++r) {
      const long end = rows[r].end < shared_begin ? rows[r].end : shared_begin;
      if (rows[r].begin < end) step(args, task, task.rows[rows[r].row], rows[r].begin, end, own(r), tile);
    }
    if (shared_begin < shared_end) step(args, task, task.rows[rows[0].row], shared_begin, shared_end, all, tile);
    for (long r = 0; r < n_rows; ++r) {
      if (shared_end < rows[r].end) step(args, task, task.rows[rows[r].row], shared_end, rows[r].end, own(r), tile);
    }
  };
  fetch(args.k, args.kv_heads, task.kv_head, args.first_position, shared_begin, shared_end);
  fetch(args.v, args.kv_heads, task.kv_head, args.first_position, shared_begin, shared_end);
  sweep(score_positions);
  const long from = task.chunk * kAttentionChunk;
  for (long r = 0; r < n_rows; ++r) {
    for (long i = first_of[r]; i < first_of[r] + rows[r].count; ++i) {
      softmax_weights(all.scores[i], rows[r].begin - from, rows[r].end - from, all.sums[i] - 2);
    }
  }
  sweep(add_positions);
}

// The next chunk's part into the running one.
void attention_join(float* running, const float* part, long v_dim) {
  const float above = running[0] > part[0] || running[0] != running[0] ? running[0] : part[0];
  const float before = exp_nonpositive(running[0] - above), after = exp_nonpositive(part[0] - above);
  running[0] = above;
  running[1] = running[1] * before + part[1] * after;
  for (long i = 2; i < part_floats(v_dim); ++i) running[i] = running[i] * before + part[i] * after;
}

// Sums over their weights, rotated back: one head's output.
void attention_close(const float* part, long v_dim, KvType type, float* out) {
  for (long i = 0; i < v_dim; ++i) out[i] = part[2 + i] / part[1];
  if (type != KvType::f16) hadamard_blocks(out, v_dim, rotated_width(v_dim));
}

#undef TWOFOLD_BY_FOURS

}  // namespace
}  // namespace twofold
