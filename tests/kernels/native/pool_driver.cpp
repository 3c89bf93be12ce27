// The thread pool alone, for ThreadSanitizer: every chunk of every operation runs once, whatever the callers, the number of
// threads, the affinity mask and the pauses between operations. With the argument "time" it prints what a barrier costs.
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "bands.hpp"
#include "cpu_share.hpp"
#include "thread_pool.hpp"

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::exit(1);
}

// Plain integers: two threads at one chunk are a race that the sanitizer sees, and a chunk left out a wrong count.
void operations(int n_calls, long n_chunks, int pause_us = 0) {
  std::vector<int> runs(static_cast<std::size_t>(n_chunks), 0);
  for (int call = 1; call <= n_calls; ++call) {
    twofold::parallel(n_chunks, [&](long chunk) { runs[static_cast<std::size_t>(chunk)] += 1; });
    for (const int n : runs) require(n == call, "a chunk ran twice or never");
    if (pause_us > 0) usleep(static_cast<useconds_t>(pause_us));
  }
}

void limit_to(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  require(sched_setaffinity(0, sizeof set, &set) == 0, "cannot set the affinity mask");
}

void test_sizes() {
  for (const int threads : {1, 2, 3, 7}) {
    twofold::set_threads(threads);
    for (const long chunks : {1L, 2L, 3L, 64L, 1000L}) operations(20, chunks);
    operations(20, 5, 300);  // longer than workers spin
  }
}

// Every item once, pieces in neighbouring runs, whatever the number of threads.
void test_bands() {
  for (const int threads : {1, 2, 3, 7, 300}) {
    twofold::set_threads(threads);
    for (const long n : {0L, 1L, 2L, 7L, 63L, 1000L}) {
      std::vector<int> runs(static_cast<std::size_t>(n), 0);
      for (int call = 1; call <= 10; ++call) {
        twofold::parallel_bands(n, [&](long begin, long end) {
          require(0 <= begin && begin < end && end <= n, "a piece outside the work");
          for (long i = begin; i < end; ++i) runs[static_cast<std::size_t>(i)] += 1;
        });
        for (const int found : runs) require(found == call, "an item ran twice or never");
      }
    }
  }
}

void test_callers() {
  twofold::set_threads(3);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([caller] {
      for (int i = 0; i < 10; ++i) {
        operations(20, 1 + caller * 5);
        if (caller == 0) twofold::set_threads(1 + i % 4);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

// The mask shrinks to one CPU while the pool lives, and grows back.
void test_masks() {
  const std::vector<int> all = twofold::allowed_cpus();
  twofold::set_threads(2);
  operations(50, 8);
  const bool was_crowded = twofold::pool_state().crowded;
  limit_to({all.front()});
  operations(600, 8);
  require(twofold::pool_state().crowded, "two threads on one CPU are not noticed");
  require(twofold::allowed_cpus() == std::vector<int>{all.front()}, "the caller's mask was changed");
  limit_to(all);
  operations(600, 8);
  require(twofold::pool_state().crowded == was_crowded, "the wider mask is not noticed");
  require(twofold::allowed_cpus() == all, "the caller's mask was changed");
}

double microseconds(int pause_us) {
  double least = 1e9;
  for (int run = 0; run < 200; ++run) {
    const int n = pause_us > 0 ? 1 : 100;
    if (pause_us > 0) usleep(static_cast<useconds_t>(pause_us));
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < n; ++i) twofold::parallel(2, [](long) {});
    const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / n;
    if (us < least) least = us;
  }
  return least;
}

// Chunks that end only when all have begun: what waking every worker costs.
double meeting_microseconds(int threads, int pause_us) {
  double least = 1e9;
  for (int run = 0; run < 200; ++run) {
    if (pause_us > 0) usleep(static_cast<useconds_t>(pause_us));
    std::atomic<int> here{0};
    const auto begin = std::chrono::steady_clock::now();
    twofold::parallel(threads, [&](long) {
      here.fetch_add(1);
      while (here.load() < threads) std::this_thread::yield();
    });
    const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
    if (us < least) least = us;
  }
  return least;
}

void print_times(int threads) {
  twofold::set_threads(threads);
  const twofold::PoolState state = twofold::pool_state();
  std::printf("%d threads, crowded %d, %zu pinned; least of 200\n", state.threads, state.crowded, state.pinned.size());
  std::printf("empty operation, one after another   %8.2f us\n", microseconds(0));
  std::printf("empty operation, workers parked      %8.2f us\n", microseconds(500));
  std::printf("all workers met, one after another   %8.2f us\n", meeting_microseconds(threads, 0));
  std::printf("all workers met, workers parked      %8.2f us\n", meeting_microseconds(threads, 500));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "time") == 0) {
    print_times(argc > 2 ? std::atoi(argv[2]) : 2);
    return 0;
  }
  test_sizes();
  test_bands();
  test_callers();
  test_masks();
  std::puts("ok");
}
