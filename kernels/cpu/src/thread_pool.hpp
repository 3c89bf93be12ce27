// A persistent pool of threads that run the chunks of one operation at a time.
//
// Workers are pinned to distinct physical cores where that helps, spin for a short while after an operation (the next one
// usually follows within microseconds) and then park. Chunks are claimed dynamically, and the caller waits for chunks, not
// for workers: one that gets no core delays nothing. Which thread runs a chunk never changes a result, since no reduction is
// split between chunks. After a fork the child starts workers of its own at its first operation. Calls from several threads
// take turns.
#pragma once

#include <vector>

namespace twofold {

using ChunkFunction = void (*)(void* context, long chunk);

// Threads that take part in an operation, the calling one included. At least 1, at most 4096; more than cores is allowed.
// Throws std::invalid_argument outside that range, std::runtime_error where the system refuses to start a thread.
void set_threads(int n_threads);
int threads();

struct PoolState {
  int threads;
  // More threads than CPUs or than a quota grants: nobody spins, nobody is pinned.
  bool crowded;
  // The CPU of each worker, empty where they are not pinned.
  std::vector<int> pinned;
};

// How the pool is set up for the calling thread's affinity mask and this process's quota, both read now.
//
// Workers are pinned unless crowded, TWOFOLD_PIN=0, the mask has only a part of some core's CPUs, or other programs keep
// pinned workers waiting. The caller's own
// affinity is never changed: the pool keeps clear of the core that the caller runs on. A mask that changes later is noticed
// within a few hundred operations.
PoolState pool_state();

// Run function(context, chunk) for chunk 0..n_chunks-1 and return when all have finished. Functions must not throw.
void parallel_chunks(long n_chunks, ChunkFunction function, void* context);

template <class Body>
void parallel(long n_chunks, const Body& body) {
  if (n_chunks <= 1) {
    if (n_chunks == 1) body(0L);
    return;
  }
  ChunkFunction call = [](void* context, long chunk) { (*static_cast<const Body*>(context))(chunk); };
  parallel_chunks(n_chunks, call, const_cast<Body*>(&body));
}

}  // namespace twofold
