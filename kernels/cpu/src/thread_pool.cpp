#include "thread_pool.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "cpu_share.hpp"
#include "float_environment.hpp"

namespace twofold {
namespace {

constexpr int kMaxThreads = 4096;
constexpr long kMostChunks = 1L << 31;
constexpr auto kSpin = std::chrono::microseconds(100);
constexpr unsigned kCallsBetweenLooks = 256;  // at the affinity mask, a system call
constexpr unsigned kLooksUntilPinned = 64;    // after pinned workers were kept waiting

int usable_cores() {
  const std::vector<int> allowed = allowed_cpus();
  if (!allowed.empty()) return static_cast<int>(allowed.size());
  const unsigned n = std::thread::hardware_concurrency();
  return n == 0 ? 1 : static_cast<int>(n);
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

template <class Ready>
bool spin(const Ready& ready) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (ready()) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

void set_affinity(std::thread& worker, const std::vector<int>& cpus) {
#if defined(__linux__)
  const int n = cpus.empty() ? 0 : *std::max_element(cpus.begin(), cpus.end()) + 1;
  if (n == 0) return;
  cpu_set_t* set = CPU_ALLOC(n);
  CPU_ZERO_S(CPU_ALLOC_SIZE(n), set);
  for (const int cpu : cpus) CPU_SET_S(cpu, CPU_ALLOC_SIZE(n), set);
  // Refused where a cpuset has just changed; the next look at the mask puts it right.
  static_cast<void>(pthread_setaffinity_np(worker.native_handle(), CPU_ALLOC_SIZE(n), set));
  CPU_FREE(set);
#else
  static_cast<void>(worker), static_cast<void>(cpus);
#endif
}

int current_cpu() {
#if defined(__linux__)
  return sched_getcpu();
#else
  return -1;
#endif
}

bool pinning_wanted() {
  const char* asked = std::getenv("TWOFOLD_PIN");
  return asked == nullptr || std::strcmp(asked, "0") != 0;
}

// Where the workers run. Only the thread that holds the turn touches it.
class Placement {
 public:
  // Look at the calling thread's mask and the quota, and place the workers anew where something changed. `kept_waiting`:
  // workers often came late, so other programs run on their CPUs and the system had better choose for a while.
  void look(std::vector<std::thread>& workers, bool kept_waiting) {
    std::vector<int> allowed = allowed_cpus();
    if (looked_ && allowed == allowed_) {
      if (kept_waiting && !cpus_.empty()) {
        loosen(workers);
        looks_until_pinned_ = kLooksUntilPinned;
      }
      if (looks_until_pinned_ == 0 || --looks_until_pinned_ > 0) return;
    }
    looks_until_pinned_ = 0;
    looked_ = true;
    allowed_ = std::move(allowed);
    const CpuShare share = cpu_share(allowed_);
    const int n_threads = static_cast<int>(workers.size()) + 1;
    const int available = allowed_.empty() ? usable_cores() : static_cast<int>(allowed_.size());
    crowded_ = n_threads > available || (share.quota > 0 && share.quota < n_threads);
    if (crowded_ || allowed_.empty() || !share.whole_cores || !pinning_wanted()) {
      loosen(workers);
      return;
    }
    cpus_.clear();
    core_.assign(static_cast<std::size_t>(allowed_.back()) + 1, -1);
    for (std::size_t i = 0; i < share.order.size(); ++i) core_[share.order[i]] = share.core[i];
    own_ = current_cpu();
    if (own_ < 0 || !std::binary_search(allowed_.begin(), allowed_.end(), own_)) own_ = share.order.front();
    // The caller's core comes last: its other CPUs are as busy as it is.
    for (const bool callers_core : {false, true}) {
      for (const int cpu : share.order) {
        const bool is_callers = core_[cpu] == core_[own_];
        if (cpu != own_ && is_callers == callers_core && cpus_.size() < workers.size()) cpus_.push_back(cpu);
      }
    }
    for (std::size_t i = 0; i < workers.size(); ++i) set_affinity(workers[i], {cpus_[i]});
  }

  // Where the caller has come to the core of a worker, that worker gets the core that the caller left.
  void keep_clear_of_caller(std::vector<std::thread>& workers) {
    if (cpus_.empty()) return;
    const int cpu = current_cpu();
    if (cpu == own_ || cpu < 0 || static_cast<std::size_t>(cpu) >= core_.size() || core_[cpu] < 0) return;
    const auto same = std::find(cpus_.begin(), cpus_.end(), cpu);
    const auto on_core = std::find_if(cpus_.begin(), cpus_.end(), [&](int at) { return core_[at] == core_[cpu]; });
    const auto met = same != cpus_.end() ? same : on_core;
    if (met != cpus_.end() && *met != own_ && core_[own_] != core_[cpu]) {
      *met = own_;
      set_affinity(workers[static_cast<std::size_t>(met - cpus_.begin())], {own_});
    }
    own_ = cpu;
  }

  bool crowded() const { return crowded_; }
  const std::vector<int>& pinned() const { return cpus_; }

 private:
  void loosen(std::vector<std::thread>& workers) {
    cpus_.clear();
    for (std::thread& worker : workers) set_affinity(worker, allowed_);
  }

  unsigned looks_until_pinned_ = 0;
  bool looked_ = false, crowded_ = false;
  std::vector<int> allowed_, cpus_, core_;
  int own_ = -1;
};

class Pool {
 public:
  explicit Pool(int n_threads) {
    try {
      for (int i = 1; i < n_threads; ++i) workers_.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      const std::string started = std::to_string(workers_.size() + 1);
      stop();
      throw std::runtime_error("cannot start " + std::to_string(n_threads) + " threads, only " + started + ": " + error.what());
    }
    look();
  }

  ~Pool() { stop(); }

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  PoolState state() {
    look();
    return {size(), placement_.crowded(), placement_.pinned()};
  }

  void run(long n_chunks, ChunkFunction function, void* context) {
    if (++calls_ % kCallsBetweenLooks == 0) look();
    placement_.keep_clear_of_caller(workers_);
    // Nobody reads these now: they are read behind a claim, and all claimed chunks have been reported.
    function_ = function;
    context_ = context;
    n_chunks_ = n_chunks;
    unfinished_.store(n_chunks, std::memory_order_relaxed);
    const std::uint64_t call = (work_.load(std::memory_order_relaxed) >> 32) + 1;
    work_.store(call << 32 | static_cast<std::uint64_t>(n_chunks), std::memory_order_seq_cst);
    if (parked_.load(std::memory_order_seq_cst) > 0) wake(n_chunks - 1);
    report(claim_chunks());
    const auto all_done = [this] { return unfinished_.load(std::memory_order_seq_cst) == 0; };
    if (all_done() || (!placement_.crowded() && spin(all_done))) return;
    ++late_;
    std::unique_lock<std::mutex> lock(mutex_);
    caller_parked_.store(true, std::memory_order_seq_cst);
    done_.wait(lock, all_done);
    caller_parked_.store(false, std::memory_order_relaxed);
  }

 private:
  void look() {
    placement_.look(workers_, late_ > kCallsBetweenLooks / 8);
    late_ = 0;
    crowded_.store(placement_.crowded(), std::memory_order_relaxed);
  }

  // Wake as many workers as there are chunks for; under the lock, so that one on its way to parking cannot miss it.
  void wake(long wanted) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (wanted >= static_cast<long>(workers_.size())) {
      wake_.notify_all();
    } else {
      for (long i = 0; i < wanted; ++i) wake_.notify_one();
    }
  }

  // Claim and run chunks while there are any; returns how many.
  long claim_chunks() {
    long done = 0;
    std::uint64_t word = work_.load(std::memory_order_acquire);
    while (static_cast<std::uint32_t>(word) != 0) {
      if (!work_.compare_exchange_weak(word, word - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
      function_(context_, n_chunks_ - static_cast<long>(static_cast<std::uint32_t>(word)));
      ++done;
      word = work_.load(std::memory_order_acquire);
    }
    return done;
  }

  void report(long done) {
    if (done == 0 || unfinished_.fetch_sub(done, std::memory_order_seq_cst) != done) return;
    if (caller_parked_.load(std::memory_order_seq_cst)) {
      const std::lock_guard<std::mutex> lock(mutex_);
      done_.notify_one();
    }
  }

  void work() {
    const FloatEnvironment environment;
    std::uint64_t seen = 0;
    for (;;) {
      const auto called = [&] { return work_.load(std::memory_order_seq_cst) >> 32 != seen; };
      if (!called() && (crowded_.load(std::memory_order_relaxed) || !spin(called))) {
        std::unique_lock<std::mutex> lock(mutex_);
        parked_.fetch_add(1, std::memory_order_seq_cst);
        wake_.wait(lock, called);
        parked_.fetch_sub(1, std::memory_order_relaxed);
      }
      seen = work_.load(std::memory_order_acquire) >> 32;
      if (stopping_.load(std::memory_order_relaxed)) return;
      report(claim_chunks());
    }
  }

  void stop() {
    stopping_.store(true, std::memory_order_relaxed);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      work_.fetch_add(std::uint64_t{1} << 32, std::memory_order_seq_cst);
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }

  std::vector<std::thread> workers_;
  Placement placement_;
  unsigned calls_ = 0, late_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  // How many operations were called (upper half) and how many chunks of the last one are unclaimed: in one word, so that a
  // worker which comes late cannot claim from an operation that it did not see begin.
  alignas(64) std::atomic<std::uint64_t> work_{0};
  alignas(64) std::atomic<long> unfinished_{0};
  alignas(64) std::atomic<int> parked_{0};
  std::atomic<bool> caller_parked_{false}, crowded_{true}, stopping_{false};
  ChunkFunction function_ = nullptr;
  void* context_ = nullptr;
  long n_chunks_ = 0;
};

// One operation at a time. Never destroyed: workers may still be parked when the process ends.
std::mutex& turn() {
  static std::mutex* mutex = new std::mutex;
  return *mutex;
}
Pool* g_pool = nullptr;
int g_threads = 0;

void before_fork() { turn().lock(); }
void after_fork_in_parent() { turn().unlock(); }
void after_fork_in_child() {
  g_pool = nullptr;  // its workers exist only in the parent; the memory is left alone
  turn().unlock();
}

Pool& pool_holding_turn() {
  static const int registered = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  static_cast<void>(registered);
  if (g_threads == 0) g_threads = usable_cores();
  if (g_pool == nullptr || g_pool->size() != g_threads) {
    delete g_pool;
    g_pool = nullptr;
    g_pool = new Pool(g_threads);
  }
  return *g_pool;
}

}  // namespace

void set_threads(int n_threads) {
  if (n_threads < 1 || n_threads > kMaxThreads) {
    throw std::invalid_argument("threads must be 1 to 4096, got " + std::to_string(n_threads));
  }
  std::lock_guard<std::mutex> lock(turn());
  const int before = g_threads;
  g_threads = n_threads;
  try {
    pool_holding_turn();
  } catch (...) {
    g_threads = before;
    throw;
  }
}

int threads() {
  std::lock_guard<std::mutex> lock(turn());
  return g_threads == 0 ? usable_cores() : g_threads;
}

PoolState pool_state() {
  std::lock_guard<std::mutex> lock(turn());
  return pool_holding_turn().state();
}

void parallel_chunks(long n_chunks, ChunkFunction function, void* context) {
  std::lock_guard<std::mutex> lock(turn());
  Pool& pool = pool_holding_turn();
  if (pool.size() == 1 || n_chunks >= kMostChunks) {
    for (long chunk = 0; chunk < n_chunks; ++chunk) function(context, chunk);
    return;
  }
  pool.run(n_chunks, function, context);
}

}  // namespace twofold
