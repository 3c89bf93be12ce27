// How fast memory can be read: a set larger than the caches, read in one sequential band per pinned thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace twofold {

// Owns the memory and the threads. Every thread fills its own band first, so that on a NUMA machine the pages lie next to
// the core that reads them, as an engine worker's weights do.
class ReadMeter {
 public:
  // `bytes` in all (rounded down to whole cache lines per thread), one thread per entry of `cpus`; an entry of -1 is not pinned.
  // Throws std::invalid_argument for an empty list or too few bytes, std::bad_alloc, std::system_error.
  ReadMeter(std::size_t bytes, std::vector<int> cpus);
  ~ReadMeter();
  ReadMeter(const ReadMeter&) = delete;
  ReadMeter& operator=(const ReadMeter&) = delete;

  // Reads the whole set once; returns seconds from the first thread's start to the last thread's end.
  double sample();

  std::size_t bytes() const;
  bool pinned() const;             // every thread that asked for a CPU got it
  std::uint64_t checksum() const;  // sum modulo 2^64 of all words as last read
  std::uint64_t expected_checksum() const;

 private:
  class Team;
  std::unique_ptr<Team> team_;
};

}  // namespace twofold
