// What the processor can do at most: read memory, and multiply and add in registers.
// GCC and clang compile it for the processor at hand; a vector is 64 bytes on any of them.

#include <stddef.h>
#include <stdint.h>
#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

typedef uint64_t Words __attribute__((vector_size(64)));
typedef float Floats __attribute__((vector_size(64)));

// Reads `bytes`, a multiple of 256, from memory that is aligned to 64.
uint64_t read_memory(const char* memory, size_t bytes) {
  Words a = {0}, b = {0}, c = {0}, d = {0};
  for (size_t at = 0; at < bytes; at += 256) {
    const Words* words = (const Words*)(memory + at);
    for (int line = 0; line < 4; ++line) __builtin_prefetch(memory + at + 8192 + 64 * line);
    a ^= words[0];
    b ^= words[1];
    c ^= words[2];
    d ^= words[3];
  }
  a ^= b ^ c ^ d;
  return a[0] ^ a[1] ^ a[2] ^ a[3] ^ a[4] ^ a[5] ^ a[6] ^ a[7];
}

// Sums in as many registers as hide the latency. Each round is CHAINS * 16 products.
enum { CHAINS = 16 };

float multiply_float32(size_t rounds) {
  Floats sums[CHAINS], x = {0}, y = {0};
  x += 0.5f, y += 1.0f;
  // Each begins elsewhere, and none where it stays: the compiler can leave out none.
  for (int chain = 0; chain < CHAINS; ++chain) sums[chain] = y * (float)(chain + 3);
  for (size_t round = 0; round < rounds; ++round)
    for (int chain = 0; chain < CHAINS; ++chain) sums[chain] = sums[chain] * x + y;
  float sum = 0;
  for (int chain = 0; chain < CHAINS; ++chain) sum += sums[chain][0];
  return sum;
}

// Each round is CHAINS * 32 products; returns zero where the processor has no such instruction.
float multiply_bfloat16(size_t rounds) {
#if defined(__AVX512BF16__)
  __m512 sums[CHAINS];
  for (int chain = 0; chain < CHAINS; ++chain) sums[chain] = _mm512_setzero_ps();
  const __m512bh x = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.25f));
  for (size_t round = 0; round < rounds; ++round) {
    for (int chain = 0; chain < CHAINS; ++chain) {
      sums[chain] = _mm512_dpbf16_ps(sums[chain], x, x);
      __asm__("" : "+v"(sums[chain]));
    }
  }
  float sum = 0;
  for (int chain = 0; chain < CHAINS; ++chain) sum += _mm512_reduce_add_ps(sums[chain]);
  return sum;
#else
  return (void)rounds, 0;
#endif
}
