// Tells libFuzzer which of the native code's branches a call has taken. GCC knows no inline
// counters, only a call at every branch (-fsanitize-coverage=trace-pc): each gets one by its address.
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

#define COUNTERS (1 << 16)

static uint8_t counters[COUNTERS];
// libFuzzer wants to know what is at every counter; these are no functions, which it would print.
static uintptr_t places[2 * COUNTERS];

void __sanitizer_cov_trace_pc(void) {
  const uintptr_t place = (uintptr_t)__builtin_return_address(0) - (uintptr_t)counters;
  ++counters[(place ^ place >> 16) % COUNTERS];
}

typedef void Take(const void* begin, const void* end);

__attribute__((constructor)) static void give(void) {
  const char* const path = getenv("TENSOR_OPS_LIBFUZZER");
  void* const fuzzer = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : 0;
  if (!fuzzer) return;
  Take* const take_counters = (Take*)dlsym(fuzzer, "__sanitizer_cov_8bit_counters_init");
  Take* const take_places = (Take*)dlsym(fuzzer, "__sanitizer_cov_pcs_init");
  if (!take_counters || !take_places) abort();
  for (int i = 0; i < COUNTERS; ++i) places[2 * i] = (uintptr_t)(counters + i);
  take_counters(counters, counters + COUNTERS);
  take_places(places, places + 2 * COUNTERS);
}
