// The most that the processor can do: read memory, and multiply and add in registers.
// GCC and clang compile it for the processor at hand.

#include <stddef.h>
#include <stdint.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

typedef uint64_t Words __attribute__((vector_size(64)));

// The sums hide the latency, and fit into registers beside two factors: there are 32 with AVX-512,
// and 16 with AVX2.
#if defined(__AVX512F__)
enum { BYTES = 64, CHAINS = 16 };
#else
enum { BYTES = 32, CHAINS = 10 };
#endif
typedef float Floats __attribute__((vector_size(BYTES)));

// Unrolled, since an array with an index that is not constant lies in memory.
#define FOR_EACH_CHAIN _Pragma("GCC unroll 16") for (int chain = 0; chain < CHAINS; ++chain)

// How many products a round has. Those of bfloat16 are of float32 where no instruction multiplies
// bfloat16, since they are computed so there.
const size_t products_float32 = CHAINS * BYTES / sizeof(float);
#if defined(__AVX512BF16__)
const size_t products_bfloat16 = CHAINS * 32;
#else
const size_t products_bfloat16 = CHAINS * BYTES / sizeof(float);
#endif
// Products of bytes are of float32 where this file knows no instruction for them.
#if defined(__AVX512VNNI__) || defined(__AVX2__)
const size_t products_int8 = CHAINS * BYTES;
#else
const size_t products_int8 = CHAINS * BYTES / sizeof(float);
#endif

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

float multiply_float32(size_t rounds) {
  Floats sums[CHAINS], x = {0}, y = {0};
  x += 0.5f, y += 1.0f;
  // Each begins elsewhere, and none where it stays: the compiler can leave out none.
  FOR_EACH_CHAIN sums[chain] = y * (float)(chain + 3);
  for (size_t round = 0; round < rounds; ++round) FOR_EACH_CHAIN sums[chain] = sums[chain] * x + y;
  float sum = 0;
  FOR_EACH_CHAIN sum += sums[chain][0];
  return sum;
}

float multiply_bfloat16(size_t rounds) {
#if defined(__AVX512BF16__)
  __m512 sums[CHAINS];
  FOR_EACH_CHAIN sums[chain] = _mm512_setzero_ps();
  const __m512bh x = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.25f));
  for (size_t round = 0; round < rounds; ++round) {
    FOR_EACH_CHAIN {
      sums[chain] = _mm512_dpbf16_ps(sums[chain], x, x);
      __asm__("" : "+v"(sums[chain]));
    }
  }
  float sum = 0;
  FOR_EACH_CHAIN sum += _mm512_reduce_add_ps(sums[chain]);
  return sum;
#else
  return multiply_float32(rounds);
#endif
}

// Sums of four products in 32 bits, or without that instruction sums of two in 16 bits, which hold
// those of some weights of 4 bits.
float multiply_int8(size_t rounds) {
#if defined(__AVX512VNNI__)
  __m512i sums[CHAINS], x = _mm512_set1_epi8(1);
  FOR_EACH_CHAIN sums[chain] = _mm512_setzero_si512();
  for (size_t round = 0; round < rounds; ++round) {
    FOR_EACH_CHAIN {
      sums[chain] = _mm512_dpbusd_epi32(sums[chain], x, x);
      __asm__("" : "+v"(sums[chain]));
    }
  }
  int sum = 0;
  FOR_EACH_CHAIN sum += _mm512_reduce_add_epi32(sums[chain]);
  return (float)sum;
#elif defined(__AVX2__)
  __m256i sums[CHAINS], x = _mm256_set1_epi8(1);
  FOR_EACH_CHAIN sums[chain] = _mm256_setzero_si256();
  for (size_t round = 0; round < rounds; ++round) {
    FOR_EACH_CHAIN {
      __asm__("" : "+x"(x));  // or the product would be computed once
      sums[chain] = _mm256_add_epi16(sums[chain], _mm256_maddubs_epi16(x, x));
      __asm__("" : "+x"(sums[chain]));
    }
  }
  int sum = 0;
  FOR_EACH_CHAIN sum += _mm256_extract_epi16(sums[chain], 0);
  return (float)sum;
#else
  return multiply_float32(rounds);
#endif
}
