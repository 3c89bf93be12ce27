// Operations are defined for IEEE arithmetic in the default environment: round to nearest even, denormals kept. Another
// library in the process may have switched that off for the calling thread, so it is set on entry and put back after.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace twofold {

class FloatEnvironment {
 public:
#if defined(__x86_64__)
  FloatEnvironment() : saved_(_mm_getcsr()) { _mm_setcsr(0x1F80); }
  ~FloatEnvironment() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#elif defined(__aarch64__)
  FloatEnvironment() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" : : "r"(0UL));
  }
  ~FloatEnvironment() { asm volatile("msr fpcr, %0" : : "r"(saved_)); }

 private:
  unsigned long saved_;
#else
  FloatEnvironment() {}
#endif

 public:
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;
};

}  // namespace twofold
