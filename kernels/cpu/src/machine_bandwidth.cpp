#include "machine_bandwidth.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>

#ifdef __linux__
#include <pthread.h>
#include <sched.h>
#endif

namespace twofold {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kLine = 64;
constexpr std::size_t kWords = kLine / sizeof(std::uint64_t);
constexpr std::size_t kLinesAhead = 8;

// Anonymous pages, huge where the system allows it, so that the figure is the memory's and not the TLB's.
class Pages {
 public:
  explicit Pages(std::size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    madvise(data_, bytes, MADV_HUGEPAGE);
#endif
  }
  ~Pages() { munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::uint64_t* words() const { return static_cast<std::uint64_t*>(data_); }

 private:
  void* data_;
  std::size_t bytes_;
};

bool pin_self(int cpu) {
  if (cpu < 0) return true;
#ifdef __linux__
  if (cpu >= CPU_SETSIZE) return false;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return pthread_setaffinity_np(pthread_self(), sizeof(set), &set) == 0;
#else
  return false;
#endif
}

// Eight sums, so that the additions never wait for each other; the result depends on every word. Optimised for speed (see
// CMakeLists.txt) and prefetched, or it would be the loop that is measured: on a Zen 1 core 8.2 GB/s for size, 16.1 for speed,
// 20.4 with lines asked for eight ahead (4 and 12 ahead, or four streams, are within a sixth of that).
std::uint64_t sum_words(const std::uint64_t* words, std::size_t count) {
  std::uint64_t sums[kWords] = {};
  for (std::size_t i = 0; i < count; i += kWords) {
    __builtin_prefetch(words + i + kLinesAhead * kWords);
    for (std::size_t j = 0; j < kWords; ++j) sums[j] += words[i + j];
  }
  std::uint64_t total = 0;
  for (const std::uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

class ReadMeter::Team {
 public:
  Team(std::size_t words_each, std::vector<int> cpus)
      : words_each_(words_each), pages_(words_each * cpus.size() * sizeof(std::uint64_t)), workers_(cpus.size()) {
    try {
      threads_.reserve(cpus.size());
      for (std::size_t i = 0; i < cpus.size(); ++i) threads_.emplace_back(&Team::work, this, i, cpus[i]);
    } catch (...) {
      stop();
      throw;
    }
    wait_for_all();  // every band is filled
  }
  ~Team() { stop(); }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  double sample() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      waiting_for_ = workers_.size();
      ++round_;
    }
    start_.notify_all();
    wait_for_all();
    Clock::time_point first = workers_[0].begin;
    Clock::time_point last = workers_[0].end;
    for (const Worker& worker : workers_) {
      first = std::min(first, worker.begin);
      last = std::max(last, worker.end);
    }
    return std::chrono::duration<double>(last - first).count();
  }

  std::size_t words() const { return words_each_ * workers_.size(); }
  bool pinned() const {
    return std::all_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.pinned; });
  }
  std::uint64_t checksum() const {
    std::uint64_t total = 0;
    for (const Worker& worker : workers_) total += worker.sum;
    return total;
  }

 private:
  struct alignas(2 * kLine) Worker {  // apart, so that threads that finish do not disturb those that still read
    Clock::time_point begin{};
    Clock::time_point end{};
    std::uint64_t sum = 0;
    bool pinned = false;
  };

  void work(std::size_t index, int cpu) {
    Worker& self = workers_[index];
    std::uint64_t* const band = pages_.words() + index * words_each_;
    self.pinned = pin_self(cpu);
    for (std::size_t i = 0; i < words_each_; ++i) band[i] = index * words_each_ + i;
    std::size_t seen = 0;
    for (;;) {
      std::unique_lock<std::mutex> lock(mutex_);
      if (--waiting_for_ == 0) done_.notify_one();
      start_.wait(lock, [&] { return stopping_ || round_ != seen; });
      if (stopping_) return;
      seen = round_;
      lock.unlock();
      self.begin = Clock::now();
      self.sum = sum_words(band, words_each_);
      self.end = Clock::now();
    }
  }

  void wait_for_all() {
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [&] { return waiting_for_ == 0; });
  }

  void stop() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    start_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  const std::size_t words_each_;
  Pages pages_;
  std::vector<Worker> workers_;
  std::mutex mutex_;
  std::condition_variable start_;
  std::condition_variable done_;
  std::size_t waiting_for_ = workers_.size();
  std::size_t round_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

ReadMeter::ReadMeter(std::size_t bytes, std::vector<int> cpus) {
  if (cpus.empty()) throw std::invalid_argument("at least one thread is needed");
  const std::size_t lines_each = bytes / cpus.size() / kLine;
  if (lines_each == 0) throw std::invalid_argument("fewer bytes than one cache line per thread");
  team_ = std::make_unique<Team>(lines_each * kWords, std::move(cpus));
}

ReadMeter::~ReadMeter() = default;

double ReadMeter::sample() { return team_->sample(); }

std::size_t ReadMeter::bytes() const { return team_->words() * sizeof(std::uint64_t); }

bool ReadMeter::pinned() const { return team_->pinned(); }

std::uint64_t ReadMeter::checksum() const { return team_->checksum(); }

std::uint64_t ReadMeter::expected_checksum() const {
  const std::uint64_t n = team_->words();  // a multiple of 8, so that n/2 is exact; the words are 0 … n-1
  return (n / 2) * (n - 1);
}

}  // namespace twofold
