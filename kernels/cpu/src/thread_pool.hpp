// A persistent pool of threads that run the chunks of one operation at a time.
//
// Workers spin for a short while after an operation (the next one usually follows within microseconds) and then park. Chunks
// are claimed dynamically; which thread runs a chunk never changes a result, since no reduction is split between chunks.
// After a fork the child starts workers of its own at its first operation. Calls from several threads take turns.
#pragma once

namespace twofold {

using ChunkFunction = void (*)(void* context, long chunk);

// Threads that take part in an operation, the calling one included. At least 1, at most 4096; more than cores is allowed.
// Throws std::invalid_argument outside that range, std::runtime_error where the system refuses to start a thread.
void set_threads(int n_threads);
int threads();

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
