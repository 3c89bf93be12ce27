#include "tape_ops.hpp"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "attention.hpp"
#include "pass_ops.hpp"

namespace twofold {
namespace {

// Floating-point operations of a value, roughly: what divisions and exponentials weigh included.
constexpr long kNormWork = 4, kRotateWork = 16, kFinishWork = 20, kRopeWork = 4, kActivationWork = 24, kWriteWork = 8;

void check_slots(const Pass& pass, long first_position, long slots) {
  const long behind = pass.first_row + pass.rows;
  if (first_position < 0 || pass.n_committed < first_position || pass.n_committed - first_position > slots - behind) {
    throw std::invalid_argument(std::to_string(pass.rows) + " rows behind " + std::to_string(pass.first_slot()) +
                                " positions do not fit " + std::to_string(slots) + " slots from position " +
                                std::to_string(first_position) + " on");
  }
}

}  // namespace

void add_embed(Tape& tape, const std::uint16_t* table, long vocab, long hidden, float scale, Rows out) {
  tape.add_check([=](const Pass& pass) {
    for (long row = 0; row < pass.rows; ++row) {
      if (pass.tokens[row] < 0 || pass.tokens[row] >= vocab) {
        throw std::invalid_argument("token " + std::to_string(pass.tokens[row]) + " is outside a vocabulary of " +
                                    std::to_string(vocab));
      }
    }
  });
  tape.add_row("embed", hidden, [=](const Pass& pass, long row) {
    float* to = out.at(row);
    pass.k->embed(table + pass.tokens[row] * hidden, hidden, to);
    if (scale == 1.0f) return;
    for (long i = 0; i < hidden; ++i) to[i] *= scale;
  });
}

void add_rms_norm(Tape& tape, Rows x, const float* weight, float eps, long vectors, long n, Rows out) {
  tape.add_row("rms_norm", kNormWork * vectors * n, [=](const Pass& pass, long row) {
    for (long i = 0; i < vectors; ++i) pass.k->rms_norm(x.at(row) + i * n, weight, eps, n, out.at(row) + i * n);
  });
}

void add_split_linear(Tape& tape, const SplitLinear& weights, const std::string& label, Rows x, Rows out) {
  const SplitLinear* const w = &weights;
  LinearScratch* const scratch = &tape.workspace().linear;
  const long dim = w->in_features;
  tape.add_row(
      "rotate_quantise", dim * (kRotateWork + dim / (dim & -dim)),
      [=](const Pass& pass, long row) {
        rotate_and_quantise(*pass.k, *w, x.at(row), row, pass.rows, pass.use_residual, *scratch);
      },
      [=](const Pass& pass) { prepare(*w, pass.rows, pass.use_residual, *scratch); });
  tape.add_whole("product " + label, [=](const Pass& pass) {
    multiply(*pass.k, *w, pass.rows, pass.use_residual, *scratch, out.data);
  });
  if (writes_directly(*w)) return;
  tape.add_row("rotate_back", kFinishWork * w->out_features, [=](const Pass& pass, long row) {
    for (const Member& member : w->members) finish_member(*pass.k, *w, member, *scratch, row, out.at(row));
  });
}

void add_rope(Tape& tape, Rows x, RopeTables tables, long heads, long dim, Rows out) {
  tape.add_check([=](const Pass& pass) {
    const long highest = *std::max_element(pass.positions, pass.positions + pass.rows);
    if (highest >= std::min<long>(*tables.filled, tables.capacity)) {
      throw std::invalid_argument("position " + std::to_string(highest) + " is outside the rotary tables");
    }
  });
  tape.add_row("rope", kRopeWork * heads * dim, [=](const Pass& pass, long row) {
    const long at = pass.positions[row] * tables.half;
    pass.k->rope(x.at(row), tables.cos + at, tables.sin + at, heads, dim, tables.half, out.at(row));
  });
}

void add_kv_write(Tape& tape, Rows x, const KvTarget& to) {
  tape.add_check([=](const Pass& pass) { check_slots(pass, *to.first_position, to.slots); });
  tape.add_row("kv_write", kWriteWork * to.kv_heads * to.dim, [=](const Pass& pass, long row) {
    kv_write_row(x.at(row), to.kv_heads, to.dim, to.type, pass.first_slot() + row - *to.first_position, to.data);
  });
}

void add_attention(Tape& tape, const AttentionArgs& args, const std::int64_t* first_position, long slots, long window) {
  tape.add_check([=](const Pass& pass) {
    check_slots(pass, *first_position, slots);
    if (*first_position > 0 && (window == 0 || pass.n_committed - *first_position + 1 < window)) {
      throw std::invalid_argument("positions that the window shows are no longer in the cache");
    }
  });
  tape.add_whole("attention", [=](const Pass& pass) {
    AttentionArgs now = args;
    now.first_position = *first_position;
    attention_rows(now, pass.rows, pass.first_row, pass.n_committed - now.first_position, pass.parents, window);
  });
}

void add_silu_mul(Tape& tape, Rows gate, Rows up, long n, Rows out) {
  tape.add_row("silu_mul", kActivationWork * n, [=](const Pass& pass, long row) {
    pass.k->silu_mul(gate.at(row), up.at(row), n, out.at(row));
  });
}

void add_gelu_mul(Tape& tape, Rows gate, Rows up, long n, Rows out) {
  tape.add_row("gelu_mul", kActivationWork * n, [=](const Pass& pass, long row) {
    pass.k->gelu_mul(gate.at(row), up.at(row), n, out.at(row));
  });
}

void add_add(Tape& tape, Rows x, Rows y, long n, Rows out) {
  tape.add_row("add", n, [=](const Pass& pass, long row) { pass.k->add(x.at(row), y.at(row), n, out.at(row)); });
}

void add_argmax(Tape& tape, Rows x, long n, Rows out) {
  tape.add_whole("argmax", [=](const Pass& pass) {
    if (!pass.use_residual) return;
    std::vector<std::int64_t> best(static_cast<std::size_t>(pass.rows));
    argmax_rows(x.data, pass.rows, n, best.data());
    for (long row = 0; row < pass.rows; ++row) *out.at(row) = static_cast<float>(best[static_cast<std::size_t>(row)]);
  });
}

void add_copy(Tape& tape, Rows x, long n, Rows out) {
  tape.add_row("copy", n, [=](const Pass&, long row) { std::copy_n(x.at(row), n, out.at(row)); });
}

}  // namespace twofold
