#include "map_guard.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mutex>
#include <stdexcept>

namespace twofold {
namespace {

struct Range {
  std::atomic<std::uintptr_t> begin{0}, end{0};
  std::atomic<long> faults{0};
};

// Read by the signal handler, so without locks; a slot is in use while `end` is not 0.
Range g_ranges[MapGuard::kMostGuards];
std::atomic<int> g_used{0};  // slots from here on were never used
std::mutex g_mutex;
struct sigaction g_previous;
std::uintptr_t g_page = 4096;

void pass_on(int signal, siginfo_t* info, void* context) {
  if (g_previous.sa_flags & SA_SIGINFO) return g_previous.sa_sigaction(signal, info, context);
  if (g_previous.sa_handler != SIG_DFL && g_previous.sa_handler != SIG_IGN) return g_previous.sa_handler(signal);
  sigaction(signal, &g_previous, nullptr);  // the same access then ends the process as it would have
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (int slot = 0; info->si_code == BUS_ADRERR && slot < g_used.load(std::memory_order_acquire); ++slot) {
    Range& range = g_ranges[slot];
    if (address < range.begin.load(std::memory_order_acquire) || address >= range.end.load(std::memory_order_acquire)) {
      continue;
    }
    void* const page = reinterpret_cast<void*>(address / g_page * g_page);
    // A system call and nothing else of the library, as a handler must.
    if (mmap(page, g_page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) break;
    range.faults.fetch_add(1, std::memory_order_release);
    return;
  }
  pass_on(signal, info, context);
}

void install() {
  static const bool installed = [] {
    g_page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, &g_previous) == 0;
  }();
  static_cast<void>(installed);
}

std::int64_t changed_ns(const struct stat& file) {
  return file.st_mtim.tv_sec * std::int64_t{1000000000} + file.st_mtim.tv_nsec;
}

// The state of an open file that is no shorter than `size`; false where it is, or cannot be asked.
bool is_whole(int descriptor, std::size_t size, struct stat* now) {
  return fstat(descriptor, now) == 0 && static_cast<std::size_t>(now->st_size) >= size;
}

int take_slot() {
  for (int slot = 0; slot < MapGuard::kMostGuards; ++slot) {
    if (g_ranges[slot].end.load(std::memory_order_relaxed) != 0) continue;
    if (slot >= g_used.load(std::memory_order_relaxed)) g_used.store(slot + 1, std::memory_order_release);
    return slot;
  }
  return -1;
}

}  // namespace

MapGuard::MapGuard(std::uintptr_t address, std::size_t size, int descriptor)
    : size_(size), descriptor_(fcntl(descriptor, F_DUPFD_CLOEXEC, 0)), slot_(-1) {
  if (descriptor_ < 0) throw std::runtime_error("cannot keep the file of a map open");
  struct stat now;
  if (fstat(descriptor_, &now) == 0) changed_ns_ = changed_ns(now);
  const std::lock_guard<std::mutex> lock(g_mutex);
  install();
  slot_ = take_slot();
  if (slot_ < 0) return;
  Range& range = g_ranges[slot_];
  range.faults.store(0, std::memory_order_relaxed);
  range.begin.store(address, std::memory_order_release);
  range.end.store(address + size, std::memory_order_release);
  const auto* const begin = reinterpret_cast<const volatile std::uint8_t*>((address + size - 1) / g_page * g_page);
  const auto* byte = reinterpret_cast<const volatile std::uint8_t*>(address + size - 1);
  while (byte > begin && *byte == 0) --byte;
  if (*byte != 0) last_ = byte;
}

MapGuard::~MapGuard() {
  if (slot_ >= 0) {
    const std::lock_guard<std::mutex> lock(g_mutex);
    g_ranges[slot_].end.store(0, std::memory_order_release);
  }
  close(descriptor_);
}

long MapGuard::faults() const {
  return slot_ < 0 ? 0 : g_ranges[slot_].faults.load(std::memory_order_acquire);
}

bool MapGuard::intact() const {
  if (slot_ < 0) {
    struct stat now;
    return is_whole(descriptor_, size_, &now);
  }
  const bool whole = last_ == nullptr || *last_ != 0;
  return whole && faults() == 0;
}

bool MapGuard::unchanged() const {
  struct stat now;
  return is_whole(descriptor_, size_, &now) && changed_ns(now) == changed_ns_;
}

}  // namespace twofold
