// The floating-point mode that the kernels are written for. A caller may have set another, and the
// pool's threads have that of the caller that started them.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif defined(__aarch64__)
#include <cstdint>
#else
#include <cfenv>
#endif

namespace tensor_ops {

// While it lives the thread rounds to nearest, keeps denormal numbers and traps nothing.
class DefaultFloatMode {
 public:
  DefaultFloatMode() : before_(get()) {
    if (is_other(before_)) set_default();
  }
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;
  ~DefaultFloatMode() {
    if (is_other(before_)) set(before_);
  }

 private:
#if defined(__x86_64__)
  using Mode = unsigned;
  static constexpr Mode kDefault = 0x1F80, kStatusFlags = 0x3F;
  static Mode get() { return _mm_getcsr(); }
  static void set(Mode mode) { _mm_setcsr(mode); }
  static void set_default() { set(kDefault); }
  static bool is_other(Mode mode) { return (mode & ~kStatusFlags) != kDefault; }
#elif defined(__aarch64__)
  using Mode = std::uint64_t;
  static Mode get() {
    Mode mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void set(Mode mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
  static void set_default() { set(0); }
  static bool is_other(Mode mode) { return mode != 0; }
#else
  using Mode = std::fenv_t;
  static Mode get() {
    Mode mode;
    std::fegetenv(&mode);
    return mode;
  }
  static void set(const Mode& mode) { std::fesetenv(&mode); }
  static void set_default() { std::fesetenv(FE_DFL_ENV); }
  static bool is_other(const Mode&) { return true; }
#endif

  const Mode before_;
};

}  // namespace tensor_ops
