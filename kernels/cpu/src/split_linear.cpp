#include "split_linear.hpp"

#include <algorithm>

#include "bands.hpp"
#include "dispatch.hpp"
#include "float_environment.hpp"
#include "thread_pool.hpp"

namespace twofold {
namespace {

constexpr long kWorthAThread = 1 << 14;  // floating-point operations that outweigh waking a thread

bool has_second(const SplitLinear& w, bool use_residual) { return use_residual && w.residual_planes != w.base_planes; }

void quantise(const Kernels& k, const SplitLinear& w, const float* x, long row, long rows, QuantisedRows& to) {
  k.quantize(x, w.in_features, to.planes, rows, w.group_size, to.t.data() + row * w.group_size,
             to.q.data() + 2 * row * w.group_size, to.sums.data() + row, to.unit.data() + row);
}

// Grows only: passes of alternating widths would otherwise write zeros again and again. To exactly what is needed, so that the
// sizes follow from the widest pass alone, in whatever order passes come.
template <class T>
void grow(std::vector<T>& values, long n) {
  if (values.size() >= static_cast<std::size_t>(n)) return;
  values.reserve(static_cast<std::size_t>(n));
  values.resize(static_cast<std::size_t>(n));
}

template <class T>
std::size_t bytes_of(const std::vector<T>& values) {
  return values.capacity() * sizeof(T);
}

// body(i) for i in 0..n-1, in runs that are worth a thread each.
template <class Body>
void over(long n, long work_each, const Body& body) {
  const long run = std::max(1L, kWorthAThread / std::max(1L, work_each));
  parallel((n + run - 1) / run, [&](long chunk) {
    for (long i = chunk * run; i < std::min(n, (chunk + 1) * run); ++i) body(i);
  });
}

}  // namespace

void QuantisedRows::resize(const SplitLinear& w, long rows, int n_planes) {
  planes = n_planes;
  grow(t, w.groups * rows * w.group_size);
  grow(q, 2 * w.groups * rows * w.group_size);
  grow(sums, w.groups * rows);
  grow(unit, w.groups * rows);
}

std::size_t QuantisedRows::bytes() const { return bytes_of(t) + bytes_of(q) + bytes_of(sums) + bytes_of(unit); }

std::size_t LinearScratch::bytes() const { return base.bytes() + residual.bytes() + bytes_of(padded); }

bool writes_directly(const SplitLinear& w) {
  return w.output_signs == nullptr && w.bias == nullptr && w.out_features == w.tiles * kTileRows;
}

void prepare(const SplitLinear& w, long rows, bool use_residual, LinearScratch& scratch) {
  scratch.base.resize(w, rows, use_residual ? w.base_planes : kDraftPlanes);
  if (has_second(w, use_residual)) scratch.residual.resize(w, rows, w.residual_planes);
  if (!writes_directly(w)) grow(scratch.padded, rows * w.tiles * kTileRows);
}

void rotate_and_quantise(const Kernels& k, const SplitLinear& w, const float* x, long row, long rows, bool use_residual,
                         LinearScratch& scratch) {
  thread_local std::vector<float> buffer;
  const long dim = w.in_features;
  buffer.resize(static_cast<std::size_t>(2 * dim));
  k.rotate(x, w.input_signs, w.mix_in, dim, buffer.data(), buffer.data() + dim);
  quantise(k, w, buffer.data(), row, rows, scratch.base);
  if (has_second(w, use_residual)) quantise(k, w, buffer.data(), row, rows, scratch.residual);
}

void multiply(const Kernels& k, const SplitLinear& w, long rows, bool use_residual, LinearScratch& scratch, float* out) {
  ProductArgs args{};
  args.rows = rows, args.blocks = w.blocks, args.groups = w.groups, args.group_size = w.group_size;
  args.x_base = scratch.base.view();
  args.x_residual = has_second(w, use_residual) ? scratch.residual.view() : scratch.base.view();
  args.base = w.base, args.residual = w.residual;
  args.use_residual = use_residual, args.exchange = w.exchange;
  args.y = writes_directly(w) ? out : scratch.padded.data();
  args.stride = w.tiles * kTileRows;
  // by twos, which is what a strip takes at most
  parallel_bands((w.tiles + 1) / 2, [&](long begin, long end) { k.product(args, 2 * begin, std::min(2 * end, w.tiles)); });
}

void finish_member(const Kernels& k, const SplitLinear& w, const Member& member, const LinearScratch& scratch, long row,
                   float* out) {
  const float* y = scratch.padded.data() + (row * w.tiles + member.first_tile) * kTileRows;
  float* target = out + member.first_output;
  if (w.output_signs != nullptr) {
    thread_local std::vector<float> buffer;
    buffer.resize(static_cast<std::size_t>(member.rows));
    k.unrotate(y, w.output_signs + member.first_output, member.mix, member.rows, target, buffer.data());
  } else {
    std::copy_n(y, member.rows, target);
  }
  if (w.bias != nullptr) k.add(target, w.bias + member.first_output, member.rows, target);
}

void split_linear(const SplitLinear& w, const float* x, long rows, bool use_residual, float* out) {
  if (rows == 0) return;
  const FloatEnvironment environment;
  const Kernels& k = kernels();
  thread_local LinearScratch own;
  LinearScratch& scratch = own;  // the caller's, not that of the thread that runs a chunk
  prepare(w, rows, use_residual, scratch);
  const long dim = w.in_features;
  over(rows, dim * (16 + dim / (dim & -dim)), [&](long row) {
    rotate_and_quantise(k, w, x + row * dim, row, rows, use_residual, scratch);
  });
  multiply(k, w, rows, use_residual, scratch, out);
  if (writes_directly(w)) return;
  const long members = static_cast<long>(w.members.size());
  over(rows * members, w.out_features / members * 20, [&](long task) {
    const Member& member = w.members[static_cast<std::size_t>(task % members)];
    finish_member(k, w, member, scratch, task / members, out + task / members * w.out_features);
  });
}

}  // namespace twofold
