#include "split_linear.hpp"

#include <algorithm>

#include "dispatch.hpp"
#include "float_environment.hpp"
#include "thread_pool.hpp"

namespace twofold {
namespace {

// Rows as the product reads them, for one number of planes.
struct QuantisedRows {
  std::vector<std::int16_t> t;
  std::vector<std::int32_t> sums;
  std::vector<float> unit;

  void resize(const SplitLinear& w, long rows) {
    t.resize(static_cast<std::size_t>(w.groups * rows * w.group_size));
    sums.resize(static_cast<std::size_t>(w.groups * rows));
    unit.resize(static_cast<std::size_t>(rows));
  }
  void quantise(const Kernels& k, const SplitLinear& w, const float* x, int planes, long row, long rows) {
    k.quantize(x, w.in_features, planes, rows, w.group_size, t.data() + row * w.group_size, sums.data() + row,
               unit.data() + row);
  }
  Activations view() const { return {t.data(), sums.data(), unit.data()}; }
};

struct Workspace {
  QuantisedRows base, residual;
  std::vector<float> padded;
};

constexpr long kWorthAThread = 1 << 14;  // floating-point operations that outweigh waking a thread

void rotate_and_quantise(const Kernels& k, const SplitLinear& w, const float* x, long rows, bool second, Workspace& work) {
  const long dim = w.in_features, a_row = dim * (16 + dim / (dim & -dim));
  const long rows_a_chunk = std::max(1L, kWorthAThread / a_row);
  work.base.resize(w, rows);
  if (second) work.residual.resize(w, rows);
  parallel((rows + rows_a_chunk - 1) / rows_a_chunk, [&](long chunk) {
    thread_local std::vector<float> buffer;
    buffer.resize(static_cast<std::size_t>(2 * dim));
    const long end = std::min(rows, (chunk + 1) * rows_a_chunk);
    for (long row = chunk * rows_a_chunk; row < end; ++row) {
      k.rotate(x + row * dim, w.input_signs, w.mix_in, dim, buffer.data(), buffer.data() + dim);
      work.base.quantise(k, w, buffer.data(), w.base_planes, row, rows);
      if (second) work.residual.quantise(k, w, buffer.data(), w.residual_planes, row, rows);
    }
  });
}

void multiply(const Kernels& k, const ProductArgs& args, long tiles) {
  // runs of neighbouring tiles, several a thread, so that a thread that is disturbed does not hold up the others
  const long chunks = std::min(tiles, static_cast<long>(threads()) * 8);
  parallel(chunks, [&](long chunk) { k.product(args, tiles * chunk / chunks, tiles * (chunk + 1) / chunks); });
}

void finish_member(const Kernels& k, const SplitLinear& w, const Member& member, const float* padded, float* out) {
  const float* y = padded + member.first_tile * kTileRows;
  float* target = out + member.first_output;
  if (w.output_signs != nullptr) {
    thread_local std::vector<float> scratch;
    scratch.resize(static_cast<std::size_t>(member.rows));
    k.unrotate(y, w.output_signs + member.first_output, member.mix, member.rows, target, scratch.data());
  } else {
    std::copy_n(y, member.rows, target);
  }
  if (w.bias != nullptr) k.add(target, w.bias + member.first_output, member.rows, target);
}

void finish(const Kernels& k, const SplitLinear& w, const float* padded, long rows, float* out) {
  const long members = static_cast<long>(w.members.size()), stride = w.tiles * kTileRows;
  const long tasks = rows * members, a_task = w.out_features / members * 20;
  const long tasks_a_chunk = std::max(1L, kWorthAThread / std::max(1L, a_task));
  parallel((tasks + tasks_a_chunk - 1) / tasks_a_chunk, [&](long chunk) {
    const long end = std::min(tasks, (chunk + 1) * tasks_a_chunk);
    for (long task = chunk * tasks_a_chunk; task < end; ++task) {
      const long row = task / members;
      const Member& member = w.members[static_cast<std::size_t>(task % members)];
      finish_member(k, w, member, padded + row * stride, out + row * w.out_features);
    }
  });
}

}  // namespace

void split_linear(const SplitLinear& w, const float* x, long rows, bool use_residual, float* out) {
  if (rows == 0) return;
  const FloatEnvironment environment;
  const Kernels& k = kernels();
  thread_local Workspace work;
  const bool second = use_residual && w.residual_planes != w.base_planes;
  rotate_and_quantise(k, w, x, rows, second, work);

  const bool direct = w.output_signs == nullptr && w.bias == nullptr && w.out_features == w.tiles * kTileRows;
  if (!direct) work.padded.resize(static_cast<std::size_t>(rows * w.tiles * kTileRows));
  ProductArgs args{};
  args.rows = rows, args.blocks = w.blocks, args.groups = w.groups, args.group_size = w.group_size;
  args.x_base = work.base.view();
  args.x_residual = second ? work.residual.view() : work.base.view();
  args.base = w.base, args.residual = w.residual;
  args.use_residual = use_residual, args.exchange = w.exchange;
  args.y = direct ? out : work.padded.data();
  args.stride = w.tiles * kTileRows;
  multiply(k, args, w.tiles);
  if (!direct) finish(k, w, work.padded.data(), rows, out);
}

}  // namespace twofold
