// Runs every operation without Python, so that sanitizers see all of it: buffers of exactly the needed size, every tier of the
// machine, odd shapes, more threads than cores, callers in parallel. Fails where tiers or thread counts differ by a bit.
#include <unistd.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "attention.hpp"
#include "dispatch.hpp"
#include "draw.hpp"
#include "pass_ops.hpp"
#include "round_columns.hpp"
#include "shortlist.hpp"
#include "split_linear.hpp"
#include "tape.hpp"
#include "tape_ops.hpp"
#include "thread_pool.hpp"
#include "top_k.hpp"

namespace {

std::mt19937 random_bits(1);

template <class T>
std::vector<T> random_bytes(std::size_t n) {
  std::vector<T> values(n);
  auto* bytes = reinterpret_cast<unsigned char*>(values.data());
  for (std::size_t i = 0; i < n * sizeof(T); ++i) bytes[i] = static_cast<unsigned char>(random_bits());
  return values;
}

std::vector<float> random_floats(std::size_t n) {
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random_bits);
  return values;
}

std::vector<std::uint16_t> random_halves(std::size_t n) {
  std::vector<std::uint16_t> values = random_bytes<std::uint16_t>(n);
  for (auto& value : values) value = static_cast<std::uint16_t>((value & 0x83FF) | 0x3000);  // +-0.125..0.25
  return values;
}

void check(const std::vector<float>& actual, std::vector<float>& expected, const std::string& what) {
  if (expected.empty()) expected = actual;
  if (std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)) == 0) return;
  std::fprintf(stderr, "%s differs under %s with %d threads\n", what.c_str(), twofold::isa().c_str(), twofold::threads());
  std::exit(1);
}

// Run body(result) under each tier and several thread counts; all results must be the same bits.
template <class Body>
void everywhere(const std::string& what, std::size_t size, const Body& body) {
  std::vector<float> expected;
  for (const std::string& tier : twofold::available_tiers()) {
    twofold::force_isa(tier);
    for (int threads : {1, 2, 5}) {
      twofold::set_threads(threads);
      std::vector<float> result(size, -1.0f);
      body(result.data());
      check(result, expected, what);
    }
  }
  twofold::force_isa("");
}

struct OwnedSplitLinear {
  twofold::SplitLinear view{};
  std::vector<std::uint8_t> base, residual;
  std::vector<std::uint16_t> base_scales, residual_scales;
  std::vector<std::int8_t> input_signs, output_signs;
  std::vector<float> mix_in, bias;
  std::vector<std::vector<float>> mixes;
};

long odd_part(long n) { return n / (n & -n); }

void fill(OwnedSplitLinear& o, long in_features, const std::vector<long>& members, int bits, int planes, int exchange) {
  twofold::SplitLinear& w = o.view;
  w.in_features = in_features, w.group_size = 128;
  w.blocks = (in_features + 15) / 16, w.groups = (in_features + 127) / 128;
  o.mixes.reserve(members.size());
  for (long rows : members) {
    const long m = odd_part(rows);
    o.mixes.push_back(random_floats(static_cast<std::size_t>(m * m)));
    w.members.push_back({rows, w.tiles, w.out_features, m > 1 ? o.mixes.back().data() : nullptr});
    w.tiles += (rows + 15) / 16, w.out_features += rows;
  }
  const auto size = [](long n) { return static_cast<std::size_t>(n); };
  o.base = random_bytes<std::uint8_t>(size(w.tiles * w.blocks * 64));
  o.residual = random_bytes<std::uint8_t>(size(w.tiles * w.blocks * 32 * bits));
  o.base_scales = random_halves(size(w.tiles * w.groups * 16));
  o.residual_scales = random_halves(size(w.tiles * w.groups * 16));
  o.input_signs.assign(size(in_features), 1);
  for (std::size_t i = 0; i < o.input_signs.size(); i += 3) o.input_signs[i] = -1;
  o.output_signs.assign(size(w.out_features), -1);
  const long m = odd_part(in_features);
  o.mix_in = random_floats(size(m * m));
  o.bias = random_floats(size(w.out_features));
  w.base = {o.base.data(), o.base_scales.data(), 2, {0, 89, 165, 254}, 127};
  w.residual = {o.residual.data(), o.residual_scales.data(), bits, {}, (1 << (bits - 1)) - 1};
  w.base_planes = 2, w.residual_planes = planes, w.exchange = static_cast<twofold::Exchange>(exchange);
  w.input_signs = o.input_signs.data(), w.output_signs = o.output_signs.data();
  w.mix_in = m > 1 ? o.mix_in.data() : nullptr, w.bias = o.bias.data();
}

void test_split_linear() {
  int format = 0;
  for (long in_features : {1L, 17L, 80L, 576L}) {
    for (int bits = 4; bits <= 8; ++bits, ++format) {
      OwnedSplitLinear weights;
      fill(weights, in_features, {100, 16, 33}, bits, 1 + format % 2, format % 3);
      for (long rows : {1L, 2L, 3L, 7L, 133L}) {
        const std::vector<float> x = random_floats(static_cast<std::size_t>(rows * in_features));
        for (bool use_residual : {false, true}) {
          everywhere("split_linear", static_cast<std::size_t>(rows * 149), [&](float* out) {
            twofold::split_linear(weights.view, x.data(), rows, use_residual, out);
          });
        }
      }
    }
  }
}

void test_hostile_activations() {
  OwnedSplitLinear weights;
  fill(weights, 80, {20}, 6, 2, 0);
  for (float value : {0.0f, 1e-45f, 3e38f, __builtin_inff(), -__builtin_inff()}) {
    std::vector<float> x(80, value), out(20);
    twofold::split_linear(weights.view, x.data(), 1, true, out.data());
    twofold::silu_mul_all(x.data(), x.data(), 80, x.data());
    twofold::gelu_mul_all(x.data(), x.data(), 80, x.data());
  }
}

void test_attention() {
  using twofold::KvType;
  struct Shape { long heads, kv_heads, dim, v_dim; };
  const auto size = [](long n) { return static_cast<std::size_t>(n); };
  for (const Shape& s : {Shape{9, 3, 64, 64}, Shape{7, 1, 80, 3}, Shape{1, 1, 1, 17}, Shape{40, 1, 33, 40}}) {
    for (KvType type : {KvType::f16, KvType::q8_0, KvType::q4_0}) {
      for (long committed : {0L, 1L, 140L}) {
        const long rows = 6, slots = committed + rows;
        const std::int32_t parents[rows] = {-1, 0, 0, 2, -1, 3};
        const std::vector<float> q = random_floats(size(rows * s.heads * s.dim));
        const std::vector<float> k = random_floats(size(slots * s.kv_heads * s.dim));
        const std::vector<float> v = random_floats(size(slots * s.kv_heads * s.v_dim));
        std::vector<std::uint8_t> keys(size(slots * s.kv_heads * twofold::kv_head_bytes(type, s.dim)));
        std::vector<std::uint8_t> values(size(slots * s.kv_heads * twofold::kv_head_bytes(type, s.v_dim)));
        twofold::kv_write_rows(k.data(), s.kv_heads * s.dim, slots, s.kv_heads, s.dim, type, 0, keys.data());
        twofold::kv_write_rows(v.data(), s.kv_heads * s.v_dim, slots, s.kv_heads, s.v_dim, type, 0, values.data());
        for (long window : {0L, 1L, 3L, 20L}) {
          everywhere("attention", size(rows * s.heads * s.v_dim), [&](float* out) {
            const twofold::AttentionArgs args{q.data(), s.heads * s.dim, {keys.data(), type, s.dim},
                                              {values.data(), type, s.v_dim}, out, s.heads * s.v_dim, s.heads, s.kv_heads,
                                              0.3f, 0};
            twofold::attention_rows(args, rows, 0, committed, parents, window);
          });
        }
      }
    }
  }
}

void test_rows() {
  for (long n : {1L, 15L, 80L, 1536L}) {
    const long rows = 33;
    const std::size_t size = static_cast<std::size_t>(rows * n);
    const std::vector<float> x = random_floats(size), y = random_floats(size);
    everywhere("rms_norm", size, [&](float* out) { twofold::rms_norm_rows(x.data(), y.data(), 1e-5f, rows, n, out); });
    everywhere("silu_mul", size, [&](float* out) { twofold::silu_mul_all(x.data(), y.data(), rows * n, out); });
    everywhere("gelu_mul", size, [&](float* out) { twofold::gelu_mul_all(x.data(), y.data(), rows * n, out); });
    everywhere("add", size, [&](float* out) { twofold::add_all(x.data(), y.data(), rows * n, out); });
    everywhere("rope", size, [&](float* out) {
      twofold::rope_rows(x.data(), y.data(), y.data(), rows, 1, n, n / 2, out);
    });
    const auto table = random_halves(size);
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(rows));
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int64_t>(i);
    everywhere("embed", size, [&](float* out) { twofold::embed_rows(table.data(), rows, n, tokens.data(), rows, out); });
    everywhere("argmax", static_cast<std::size_t>(rows), [&](float* out) {
      std::vector<std::int64_t> best(static_cast<std::size_t>(rows));
      twofold::argmax_rows(x.data(), rows, n, best.data());
      for (std::size_t i = 0; i < best.size(); ++i) out[i] = static_cast<float>(best[i]);
    });
  }
}

// What reads all logits, in parts of a row and row by row.
void test_vocabulary() {
  for (long n : {1L, 40L, 4352L, 40960L}) {
    OwnedSplitLinear head;
    fill(head, 48, {n}, 6, 1, 0);
    head.view.output_signs = nullptr;
    for (long rows : {1L, 2L, 5L}) {
      const std::size_t count = static_cast<std::size_t>(rows);
      const std::vector<float> logits = random_floats(count * static_cast<std::size_t>(n)), x = random_floats(count * 48);
      const auto as_floats = [](const std::vector<std::int64_t>& ids, float* out) {
        for (std::size_t i = 0; i < ids.size(); ++i) out[i] = static_cast<float>(ids[i]);
      };
      everywhere("argmax of a vocabulary", count, [&](float* out) {
        std::vector<std::int64_t> best(count);
        twofold::argmax_rows(logits.data(), rows, n, best.data());
        as_floats(best, out);
      });
      for (long k : {1L, 7L, 40L}) {
        if (k > n) continue;
        const std::size_t kept = static_cast<std::size_t>(rows * k);
        everywhere("top_k", kept, [&](float* out) {
          std::vector<std::int64_t> best(kept);
          twofold::top_k_rows(logits.data(), rows, n, k, best.data());
          as_floats(best, out);
        });
        everywhere("shortlist", kept, [&](float* out) {
          std::vector<std::int64_t> best(kept);
          twofold::shortlist(head.view, logits.data(), x.data(), rows, std::min(n, 64L), k, best.data());
          as_floats(best, out);
        });
      }
      everywhere("draw", 6, [&](float* out) {
        for (int i = 0; i < 6; ++i) {
          const twofold::Filters filters{1.25f, i % 3 == 0 ? 0L : 30L * i, i < 3 ? 1.0 : 0.9, i % 2 ? 0.05 : 0.0};
          out[i] = static_cast<float>(twofold::draw(logits.data(), n, 9.0f, filters, 0.17 * i));
        }
      });
      everywhere("softmax_total", 2, [&](float* out) {
        const double total = twofold::softmax_total_of(logits.data(), n, 9.0f, 1.25f);
        std::memcpy(out, &total, sizeof total);
      });
    }
  }
}

// A pass in small: stages of several row operations, views of one stacked product, a residual stream.
void test_tape() {
  constexpr long kHidden = 80, kMiddle = 100;
  const auto table = random_halves(40 * kHidden);
  const std::vector<float> norm = random_floats(kHidden), angles = random_floats(64 * 20);
  OwnedSplitLinear up, down;
  fill(up, kHidden, {kMiddle, kMiddle}, 6, 2, 0);
  fill(down, kMiddle, {kHidden}, 5, 1, 0);
  const std::int64_t filled = 64;
  for (long rows : {1L, 33L}) {
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(rows));
    std::vector<std::int32_t> parents(static_cast<std::size_t>(rows + 2), -1);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int64_t>(i), parents[i + 2] = int(i);
    const auto size = [&](long n) { return static_cast<std::size_t>(rows * n); };
    everywhere("tape", size(kHidden), [&](float* out) {
      std::vector<float> x(size(kHidden)), normed(x), turned(x), stacked(size(2 * kMiddle)), active(size(kMiddle));
      const auto view = [](std::vector<float>& values, long stride) { return twofold::Rows{values.data(), stride}; };
      twofold::Workspace workspace;
      twofold::Tape tape(workspace, rows, true);
      twofold::add_embed(tape, table.data(), 40, kHidden, 1.5f, view(x, kHidden));
      twofold::add_rms_norm(tape, view(x, kHidden), norm.data(), 1e-5f, 1, kHidden, view(normed, kHidden));
      twofold::add_rope(tape, view(normed, kHidden), {angles.data(), angles.data(), &filled, 64, 20}, 2, 40,
                        view(turned, kHidden));
      twofold::add_split_linear(tape, up.view, "up", view(turned, kHidden), view(stacked, 2 * kMiddle));
      twofold::add_silu_mul(tape, view(stacked, 2 * kMiddle), {stacked.data() + kMiddle, 2 * kMiddle}, kMiddle,
                            view(active, kMiddle));
      twofold::add_split_linear(tape, down.view, "down", view(active, kMiddle), view(normed, kHidden));
      twofold::add_add(tape, view(x, kHidden), view(normed, kHidden), kHidden, {out, kHidden});
      for (bool timed : {false, true}) {
        workspace.profiling = timed;
        tape.run(tokens.data(), parents.data(), 2, 3, true);
      }
    });
  }
}

void test_round_columns() {
  for (long columns : {1L, 17L, 128L}) {
    for (long rows : {1L, 63L, 200L}) {
      const std::size_t size = static_cast<std::size_t>(columns * rows);
      const std::vector<float> weights = random_floats(size), target = random_floats(size);
      std::vector<float> feedback = random_floats(static_cast<std::size_t>(columns * columns));
      for (float& value : feedback) value *= 0.05f;
      std::vector<float> scale(static_cast<std::size_t>(rows), 0.02f);
      scale[0] = 0.0f;
      for (int inner : {0, 38}) {
        everywhere("round_columns", 2 * size, [&](float* out) {
          std::vector<float> error = weights;
          std::vector<std::int8_t> levels(size, 1);
          twofold::round_columns(error.data(), target.data(), feedback.data(), scale.data(), columns, rows, inner, 127,
                                 levels.data());
          for (std::size_t i = 0; i < size; ++i) out[i] = error[i], out[size + i] = levels[i];
        });
      }
    }
  }
}

void test_parallel_callers() {
  const std::vector<float> x = random_floats(33 * 4096);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      std::vector<float> out(x.size());
      for (int i = 0; i < 50; ++i) {
        twofold::add_all(x.data(), x.data(), static_cast<long>(x.size()), out.data());
        if (out.back() != 2 * x.back()) std::abort();
        if (caller == 0 && i % 10 == 0) twofold::set_threads(1 + i / 10);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  usleep(2000);  // workers park
  std::vector<float> out(x.size());
  twofold::add_all(x.data(), x.data(), static_cast<long>(x.size()), out.data());
}

void test_fork() {
  const std::vector<float> x = random_floats(33 * 4096);
  std::vector<float> out(x.size());
  twofold::set_threads(3);
  twofold::add_all(x.data(), x.data(), static_cast<long>(x.size()), out.data());
  const pid_t child = fork();
  if (child == 0) {
    twofold::add_all(x.data(), x.data(), static_cast<long>(x.size()), out.data());
    _exit(out.back() == 2 * x.back() ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  if (status != 0) std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  const bool threads_only = argc > 1 && std::string(argv[1]) == "threads";
  test_parallel_callers();
  test_rows();
  test_vocabulary();
  test_tape();
  test_attention();
  test_round_columns();
  if (!threads_only) {
    test_fork();  // thread sanitizers do not follow a process with threads into its child
    test_hostile_activations();
    test_split_linear();
  } else {
    OwnedSplitLinear weights;
    fill(weights, 80, {100, 33}, 6, 2, 0);
    const std::vector<float> x = random_floats(7 * 80);
    everywhere("split_linear", 7 * 133, [&](float* out) { twofold::split_linear(weights.view, x.data(), 7, true, out); });
  }
  std::puts("ok");
}
