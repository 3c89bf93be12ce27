#include "attention.hpp"

#include <algorithm>
#include <vector>

#include "dispatch.hpp"
#include "float_environment.hpp"
#include "thread_pool.hpp"

namespace twofold {
namespace {

constexpr long kSerialFloats = 1 << 14;      // less than this is not worth waking threads for
constexpr long kMostPartFloats = 1 << 21;    // parts of all chunks that may be kept at once (8 MiB)

// The caller's buffers, which grow to what the longest context needs and stay.
struct Buffers {
  std::vector<VisibleRow> rows;
  std::vector<std::int64_t> path;
  std::vector<float> queries, parts;
};

float* at_least(std::vector<float>& buffer, long n) {
  if (static_cast<long>(buffer.size()) < n) buffer.resize(static_cast<std::size_t>(n + n / 4));
  return buffer.data();
}

// One pass's work, and how it is cut: (KV head, queries), each over all chunks; or (KV head, chunk, queries), whose parts
// are joined afterwards in ascending order. Both add up in the same order.
struct Pass {
  const AttentionArgs& args;
  const Kernels& k;
  long rows, group, floats, part_size, first_chunk, n_chunks, batches;
  Buffers& buffers;

  AttentionTask task(long kv_head, long batch, long chunk, float* parts, long part_stride) const {
    thread_local std::vector<float> scratch;
    const long begin = batch * kMaxQueries, end = std::min(begin + kMaxQueries, rows * group);
    return {kv_head,
            begin,
            end,
            first_chunk + chunk,
            buffers.rows.data(),
            buffers.queries.data(),
            at_least(scratch, attention_scratch(args.k.dim, args.v.dim)),
            parts,
            part_stride};
  }

  bool sees(long row, long chunk) const {
    const VisibleRow& view = buffers.rows[static_cast<std::size_t>(row)];
    return view.first < (chunk + 1) * kAttentionChunk && view.end > chunk * kAttentionChunk;
  }

  void close(long row, long head, const float* part) const {
    k.attention_close(part, args.v.dim, args.v.type, args.out + row * args.out_stride + head * args.v.dim);
  }

  void by_chunks() const {
    float* parts = at_least(buffers.parts, args.kv_heads * n_chunks * rows * group * part_size);
    const long chunk_size = rows * group * part_size;
    // Chunk by chunk, so that the short last one is left for the end and threads finish together.
    parallel(args.kv_heads * n_chunks * batches, [&](long index) {
      const long chunk = index / (args.kv_heads * batches), kv_head = index / batches % args.kv_heads;
      float* place = parts + (kv_head * n_chunks + chunk) * chunk_size + index % batches * kMaxQueries * part_size;
      k.attention_chunk(args, task(kv_head, index % batches, chunk, place, part_size));
    });
    const auto join = [&](long index) {
      const long kv_head = index / (rows * group), query = index % (rows * group), row = query / group;
      float* running = nullptr;
      for (long chunk = 0; chunk < n_chunks; ++chunk) {
        float* part = parts + (kv_head * n_chunks + chunk) * chunk_size + query * part_size;
        if (!sees(row, first_chunk + chunk)) continue;
        running == nullptr ? static_cast<void>(running = part) : k.attention_join(running, part, args.v.dim);
      }
      close(row, kv_head * group + query % group, running);
    };
    const long n = args.kv_heads * rows * group;
    if (n * n_chunks * part_size < kSerialFloats) {
      for (long index = 0; index < n; ++index) join(index);
    } else {
      parallel(n, join);
    }
  }

  void by_queries() const {
    parallel(args.kv_heads * batches, [&](long index) {
      thread_local std::vector<float> held;
      const long kv_head = index / batches, batch = index % batches, begin = batch * kMaxQueries;
      const long n = std::min(kMaxQueries, rows * group - begin);
      float *running = at_least(held, 2 * kMaxQueries * part_size), *fresh = running + kMaxQueries * part_size;
      bool started[kMaxQueries] = {};
      for (long chunk = 0; chunk < n_chunks; ++chunk) {
        k.attention_chunk(args, task(kv_head, batch, chunk, fresh, part_size));
        for (long i = 0; i < n; ++i) {
          if (!sees((begin + i) / group, first_chunk + chunk)) continue;
          float *into = running + i * part_size, *from = fresh + i * part_size;
          started[i] ? k.attention_join(into, from, args.v.dim) : static_cast<void>(std::copy_n(from, part_size, into));
          started[i] = true;
        }
      }
      for (long i = 0; i < n; ++i) close((begin + i) / group, kv_head * group + (begin + i) % group, running + i * part_size);
    });
  }
};

// Where each row finds what it sees; a chain's rows, and a tree's as far as they follow the first branch, are in slots in
// order of position.
void find_visible(const AttentionArgs& args, long rows, long first_row, long n_committed, const std::int32_t* parents,
                  long window, Buffers& buffers) {
  const long committed = args.first_position + n_committed;
  buffers.rows.clear();
  buffers.path.clear();
  std::vector<std::int64_t>& path = buffers.path;
  std::vector<long> starts;
  bool chain = true;
  for (long row = 0; row < first_row + rows; ++row) {
    chain = chain && parents[row] == row - 1;
    const long begin = static_cast<long>(path.size());
    long straight = row + 1, depth = row + 1;
    if (!chain && row >= first_row) {
      for (long node = row; node >= 0; node = parents[node]) path.push_back(n_committed + node);
      std::reverse(path.begin() + begin, path.end());
      depth = static_cast<long>(path.size()) - begin;
      straight = 0;
      while (straight < depth && path[static_cast<std::size_t>(begin + straight)] == n_committed + straight) ++straight;
    }
    if (row < first_row) continue;
    const long end = committed + depth;
    const long first = window == 0 ? args.first_position : std::max(args.first_position, end - window);
    buffers.rows.push_back({first, committed + straight, end, nullptr});
    starts.push_back(begin + (depth == straight ? 0 : straight));
  }
  for (std::size_t row = 0; row < starts.size(); ++row) buffers.rows[row].path = path.data() + starts[row];
}

}  // namespace

void attention_rows(const AttentionArgs& args, long rows, long first_row, long n_committed, const std::int32_t* parents,
                    long window) {
  if (rows == 0) return;
  const FloatEnvironment environment;
  const Kernels& k = kernels();
  thread_local Buffers buffers;
  find_visible(args, rows, first_row, n_committed, parents, window, buffers);

  const long floats = query_floats(args.k.type, args.k.dim), group = args.heads / args.kv_heads;
  float* queries = at_least(buffers.queries, rows * args.heads * floats);
  const auto prepare = [&](long row) {
    thread_local std::vector<float> rotated;
    float* scratch = at_least(rotated, kv_blocks(args.k.dim) * kKvBlock);
    for (long head = 0; head < args.heads; ++head) {
      const float* q = args.q + row * args.q_stride + head * args.k.dim;
      k.attention_query(q, args.k.dim, args.k.type, queries + (row * args.heads + head) * floats, scratch);
    }
  };
  if (rows * args.heads * floats < kSerialFloats) {
    for (long row = 0; row < rows; ++row) prepare(row);
  } else {
    parallel(rows, prepare);
  }

  long first = buffers.rows[0].first, end = 0;
  for (const VisibleRow& row : buffers.rows) first = std::min(first, row.first), end = std::max(end, row.end);
  const long first_chunk = first / kAttentionChunk, n_chunks = (end - 1) / kAttentionChunk - first_chunk + 1;
  const long batches = (rows * group + kMaxQueries - 1) / kMaxQueries, part_size = part_floats(args.v.dim);
  const Pass pass{args, k, rows, group, floats, part_size, first_chunk, n_chunks, batches, buffers};
  const bool few = args.kv_heads * batches < 4L * threads();
  few && args.heads * rows * n_chunks * part_size <= kMostPartFloats ? pass.by_chunks() : pass.by_queries();
}

void kv_write_row(const float* x, long kv_heads, long dim, KvType type, long slot, std::uint8_t* cache) {
  thread_local std::vector<float> rotated;
  float* scratch = at_least(rotated, kv_blocks(dim) * kKvBlock);
  const Kernels& k = kernels();
  const long bytes = kv_head_bytes(type, dim);
  std::uint8_t* out = cache + slot * kv_heads * bytes;
  for (long head = 0; head < kv_heads; ++head) k.kv_write(x + head * dim, dim, type, out + head * bytes, scratch);
}

void kv_write_rows(const float* x, long x_stride, long rows, long kv_heads, long dim, KvType type, long first_slot,
                   std::uint8_t* cache) {
  const FloatEnvironment environment;
  const auto write = [&](long row) { kv_write_row(x + row * x_stride, kv_heads, dim, type, first_slot + row, cache); };
  if (rows * kv_heads * dim < kSerialFloats) {
    for (long row = 0; row < rows; ++row) write(row);
  } else {
    parallel(rows, write);
  }
}

}  // namespace twofold
