#include "tape.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "dispatch.hpp"
#include "float_environment.hpp"
#include "thread_pool.hpp"

namespace twofold {
namespace {

constexpr long kWorthAThread = 1 << 14;  // floating-point operations that outweigh waking a thread

std::int64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

// body(row) for every row, in runs of rows that are worth a thread each.
template <class Body>
void over_rows(long rows, long work, const Body& body) {
  const long run = std::max(1L, kWorthAThread / std::max(1L, work));
  parallel((rows + run - 1) / run, [&](long chunk) {
    for (long row = chunk * run; row < std::min(rows, (chunk + 1) * run); ++row) body(row);
  });
}

}  // namespace

Workspace::Turn::Turn(Workspace& workspace) : workspace_(workspace) {
  if (workspace.taken_.test_and_set(std::memory_order_acquire)) {
    throw std::invalid_argument("a tape is running over the same buffers");
  }
}

Workspace::Turn::~Turn() { workspace_.taken_.clear(std::memory_order_release); }

Tape::Tape(Workspace& workspace, long rows, bool has_tokens)
    : workspace_(workspace), rows_(rows), has_tokens_(has_tokens) {
  if (rows < 1) throw std::invalid_argument("a pass has at least one row");
}

void Tape::add_row(std::string name, long work, RowFunction run, WholeFunction prepare) {
  if (stages_.empty() || stages_.back().operations.empty()) stages_.emplace_back();
  Stage& stage = stages_.back();
  stage.operations.push_back({std::move(name), std::move(run)});
  if (prepare) stage.prepare.push_back(std::move(prepare));
  stage.work += work;
}

void Tape::add_whole(std::string name, WholeFunction run) {
  stages_.emplace_back();
  stages_.back().name = std::move(name);
  stages_.back().whole = std::move(run);
}

Pass Tape::describe(const std::int64_t* tokens, const std::int32_t* parents, long first_row, long n_committed,
                    bool use_residual) {
  Pass pass{&kernels(), rows_, first_row, n_committed, use_residual, nullptr, nullptr, nullptr};
  if (!has_tokens_) return pass;
  if (n_committed < 0) throw std::invalid_argument("fewer than no committed positions");
  if (n_committed > kMostPositions) throw std::invalid_argument("more committed positions than can be numbered");
  // copies, so that what was checked is what is used
  tokens_.assign(tokens, tokens + rows_);
  parents_.assign(parents, parents + first_row + rows_);
  positions_.clear();
  for (const long parent : parents_) {
    if (parent < -1 || parent >= static_cast<long>(positions_.size())) {
      throw std::invalid_argument("a row's parent is -1 or an earlier row");
    }
    positions_.push_back(parent < 0 ? n_committed : positions_[static_cast<std::size_t>(parent)] + 1);
  }
  pass.tokens = tokens_.data(), pass.positions = positions_.data() + first_row, pass.parents = parents_.data();
  return pass;
}

void Tape::run(const std::int64_t* tokens, const std::int32_t* parents, long first_row, long n_committed,
               bool use_residual) {
  const Pass pass = describe(tokens, parents, first_row, n_committed, use_residual);
  for (const Check& check : checks_) check(pass);
  const FloatEnvironment environment;
  for (const Stage& stage : stages_) {
    for (const WholeFunction& prepare : stage.prepare) prepare(pass);
    workspace_.profiling ? play_timed(stage, pass) : play(stage, pass);
  }
}

void Tape::play(const Stage& stage, const Pass& pass) const {
  if (stage.whole) return stage.whole(pass);
  over_rows(rows_, stage.work, [&](long row) {
    for (const RowOperation& operation : stage.operations) operation.run(pass, row);
  });
}

void Tape::play_timed(const Stage& stage, const Pass& pass) const {
  const auto count = [&](const std::string& name, std::int64_t ns) {
    Spent& spent = workspace_.spent[name];
    spent.ns += ns;
    ++spent.calls;
  };
  const std::int64_t start = now_ns();
  if (stage.whole) {
    stage.whole(pass);
    return count(stage.name, now_ns() - start);
  }
  std::vector<std::atomic<std::int64_t>> busy(stage.operations.size());
  over_rows(rows_, stage.work, [&](long row) {
    std::int64_t before = now_ns();
    for (std::size_t i = 0; i < stage.operations.size(); ++i) {
      stage.operations[i].run(pass, row);
      const std::int64_t after = now_ns();
      busy[i].fetch_add(after - before, std::memory_order_relaxed);
      before = after;
    }
  });
  const std::int64_t wall = now_ns() - start;
  std::int64_t all = 1;
  for (const auto& ns : busy) all += ns.load();
  for (std::size_t i = 0; i < busy.size(); ++i) {
    const double share = static_cast<double>(busy[i].load()) / static_cast<double>(all);
    count(stage.operations[i].name, static_cast<std::int64_t>(share * static_cast<double>(wall)));
  }
}

}  // namespace twofold
