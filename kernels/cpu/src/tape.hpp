// A pass as a list of operations over resolved arrays, replayed by one call.
//
// Operations are of two kinds. A row operation computes each row from that row alone. Neighbouring ones form one stage: a row
// goes through all of them on one thread while it is in that core's cache, so together they cost one barrier, and none at
// all where the stage is too small to be shared out. A whole operation (a product, attention) shares its own work out.
// Buffers that are reused must therefore have one row stride, so that a row's part of them is that row's alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels.hpp"
#include "split_linear.hpp"

namespace twofold {

// What varies between replays. The pass is the last `rows` of the rows behind the committed text, the ones before first_row
// being an earlier pass's. Of all of them, row r continues row parents[r] (-1: the committed text) and lies in slot
// n_committed + r.
struct Pass {
  const Kernels* k;
  long rows, first_row, n_committed;
  bool use_residual;
  const std::int64_t* tokens;     // [rows]
  const std::int64_t* positions;  // [rows]
  const std::int32_t* parents;    // [first_row + rows]

  long first_slot() const { return n_committed + first_row; }
};

// One row apart from the next by `stride` floats.
struct Rows {
  float* data;
  long stride;
  float* at(long row) const { return data + row * stride; }
};

struct Spent {
  std::int64_t ns = 0, calls = 0;
};

// What tapes over the same buffers share: they cannot run at the same time.
class Workspace {
 public:
  LinearScratch linear;
  bool profiling = false;
  std::map<std::string, Spent> spent;  // wall time by operation; a stage's is split by its threads' time in each of them

  std::size_t bytes() const { return linear.bytes(); }

  // Holds the workspace for a run, or while what a run changes is read; throws std::invalid_argument where it is taken.
  class Turn {
   public:
    explicit Turn(Workspace& workspace);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Workspace& workspace_;
  };

 private:
  std::atomic_flag taken_ = ATOMIC_FLAG_INIT;
};

class Tape {
 public:
  using Check = std::function<void(const Pass&)>;  // throws std::invalid_argument before anything is computed
  using WholeFunction = std::function<void(const Pass&)>;
  using RowFunction = std::function<void(const Pass&, long row)>;

  // A tape with tokens is a pass of its own; one without goes on with what another left.
  Tape(Workspace& workspace, long rows, bool has_tokens);

  long rows() const { return rows_; }
  bool has_tokens() const { return has_tokens_; }
  long stages() const { return static_cast<long>(stages_.size()); }
  Workspace& workspace() const { return workspace_; }

  void add_check(Check check) { checks_.push_back(std::move(check)); }
  // `work`: floating-point operations of a row. Functions must not throw.
  void add_row(std::string name, long work, RowFunction run, WholeFunction prepare = nullptr);
  void add_whole(std::string name, WholeFunction run);

  // Tokens [rows] and parents [first_row + rows], or null for a tape without tokens; the caller has the workspace's turn. Throws
  // std::invalid_argument, before anything is computed, for parents that are not earlier rows and for what a check refuses.
  void run(const std::int64_t* tokens, const std::int32_t* parents, long first_row, long n_committed, bool use_residual);

 private:
  struct RowOperation {
    std::string name;
    RowFunction run;
  };
  struct Stage {
    std::vector<RowOperation> operations;  // or, where there are none:
    std::string name;
    WholeFunction whole;
    std::vector<WholeFunction> prepare;
    long work = 0;
  };
  Pass describe(const std::int64_t* tokens, const std::int32_t* parents, long first_row, long n_committed,
                bool use_residual);
  void play(const Stage& stage, const Pass& pass) const;
  void play_timed(const Stage& stage, const Pass& pass) const;

  Workspace& workspace_;
  const long rows_;
  const bool has_tokens_;
  std::vector<Stage> stages_;
  std::vector<Check> checks_;
  std::vector<std::int64_t> tokens_, positions_;
  std::vector<std::int32_t> parents_;
};

}  // namespace twofold
