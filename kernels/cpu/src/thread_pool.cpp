#include "thread_pool.hpp"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "float_environment.hpp"

namespace twofold {
namespace {

constexpr int kMaxThreads = 4096;
constexpr auto kSpin = std::chrono::microseconds(100);

int usable_cores() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
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

// Spin until ready() or the time is over; says whether it was ready. Gives the core away at once where threads outnumber
// cores, since then the thread that is waited for may need this one's core.
template <class Ready>
bool spin(bool crowded, const Ready& ready) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (ready()) return true;
      crowded ? static_cast<void>(sched_yield()) : relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return ready();
}

class Pool {
 public:
  explicit Pool(int n_threads) : crowded_(n_threads > usable_cores()) {
    try {
      for (int i = 1; i < n_threads; ++i) workers_.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      const std::string started = std::to_string(workers_.size() + 1);
      stop();
      throw std::runtime_error("cannot start " + std::to_string(n_threads) + " threads, only " + started + ": " + error.what());
    }
  }

  ~Pool() { stop(); }

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  void run(long n_chunks, ChunkFunction function, void* context) {
    function_ = function;
    context_ = context;
    n_chunks_ = n_chunks;
    next_.store(0, std::memory_order_relaxed);
    busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    {
      // under the lock, so that a worker on its way to parking cannot miss it
      std::lock_guard<std::mutex> lock(mutex_);
      epoch_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    claim_chunks();
    const auto all_done = [this] { return busy_.load(std::memory_order_acquire) == 0; };
    if (spin(crowded_, all_done)) return;
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, all_done);
  }

 private:
  void claim_chunks() {
    for (long chunk; (chunk = next_.fetch_add(1, std::memory_order_relaxed)) < n_chunks_;) function_(context_, chunk);
  }

  void work() {
    const FloatEnvironment environment;
    unsigned seen = 0;
    for (;;) {
      const auto called = [&] { return epoch_.load(std::memory_order_acquire) != seen; };
      if (!spin(crowded_, called)) {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, called);
      }
      ++seen;
      if (stopping_.load(std::memory_order_relaxed)) return;
      claim_chunks();
      if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        { std::lock_guard<std::mutex> lock(mutex_); }
        done_.notify_one();
      }
    }
  }

  void stop() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_.store(true, std::memory_order_relaxed);
      epoch_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }

  const bool crowded_;
  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  alignas(64) std::atomic<unsigned> epoch_{0};
  alignas(64) std::atomic<long> next_{0};
  alignas(64) std::atomic<int> busy_{0};
  std::atomic<bool> stopping_{false};
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

void parallel_chunks(long n_chunks, ChunkFunction function, void* context) {
  std::lock_guard<std::mutex> lock(turn());
  Pool& pool = pool_holding_turn();
  if (pool.size() == 1) {
    for (long chunk = 0; chunk < n_chunks; ++chunk) function(context, chunk);
    return;
  }
  pool.run(n_chunks, function, context);
}

}  // namespace twofold
