// Reading a mapped file that became shorter, or whose disk fails, raises SIGBUS, which would end the process. While a map is
// guarded, the page that cannot be read is replaced by zeros instead and counted; whoever computed from the map must then
// discard what came out (`faults` or `intact` tell).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace twofold {

class MapGuard {
 public:
  // Guard `size` bytes from `address`, a map of the file that `descriptor` (duplicated) is open on. Throws std::runtime_error
  // when the descriptor cannot be duplicated. At most kMostGuards maps are guarded; the others are only checked for size.
  MapGuard(std::uintptr_t address, std::size_t size, int descriptor);
  ~MapGuard();
  MapGuard(const MapGuard&) = delete;
  MapGuard& operator=(const MapGuard&) = delete;

  // Pages of this map that could not be read so far.
  long faults() const;

  // Whether every page could be read so far and the file is no shorter than the map, but for zeros at its end. A file that was
  // cut inside of its last page raises no signal: the rest reads as zeros. So the last byte that is not zero is read, which
  // also raises the signal where the page is gone, and costs no system call (62 files cost 90 us).
  bool intact() const;

  // Whether the file has the size and the time of change that it had when it was guarded: tells of one that was written over.
  // A system call, so not for every step.
  bool unchanged() const;

  static constexpr int kMostGuards = 4096;

 private:
  std::size_t size_;
  int descriptor_;
  std::int64_t changed_ns_ = 0;  // st_mtim
  int slot_;
  const volatile std::uint8_t* last_ = nullptr;  // the last byte of the last page that is not zero; null: there is none
};

}  // namespace twofold
