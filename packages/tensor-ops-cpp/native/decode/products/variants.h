// Variants that products are compiled for: every instruction-set level, and some levels again with
// instructions that only some of their CPUs have. The first arguments are macros for the variants
// that have every format, those that have bf16 only, those that have integers only and those that
// have both: EVERY(argument, namespace, name). A name begins with that of the level.
// cmake/levels.cmake compiles formats/ for the same list, and defines TENSOR_OPS_WITHOUT_ and the
// namespace for each variant that it leaves out.
#pragma once

#include "isa/levels.h"

#ifdef TENSOR_OPS_WITHOUT_x86_64_v3_vnni
#define TENSOR_OPS_X86_64_V3_VNNI(BLOCKS, argument)
#else
#define TENSOR_OPS_X86_64_V3_VNNI(BLOCKS, argument) \
  BLOCKS(argument, x86_64_v3_vnni, "x86-64-v3+vnni")
#endif

#ifdef TENSOR_OPS_WITHOUT_x86_64_v4_vnni
#define TENSOR_OPS_X86_64_V4_VNNI(BLOCKS, argument)
#else
#define TENSOR_OPS_X86_64_V4_VNNI(BLOCKS, argument) \
  BLOCKS(argument, x86_64_v4_vnni, "x86-64-v4+vnni")
#endif

#ifdef TENSOR_OPS_WITHOUT_x86_64_v4_bf16
#define TENSOR_OPS_X86_64_V4_BF16(BF16, argument)
#else
#define TENSOR_OPS_X86_64_V4_BF16(BF16, argument) \
  BF16(argument, x86_64_v4_bf16, "x86-64-v4+vnni+bf16")
#endif

#ifdef TENSOR_OPS_WITHOUT_x86_64_v4_amx
#define TENSOR_OPS_X86_64_V4_AMX(BOTH, argument)
#else
#define TENSOR_OPS_X86_64_V4_AMX(BOTH, argument) \
  BOTH(argument, x86_64_v4_amx, "x86-64-v4+vnni+bf16+amx")
#endif

#ifdef TENSOR_OPS_WITHOUT_neon_dotprod
#define TENSOR_OPS_NEON_DOTPROD(EVERY, argument)
#else
#define TENSOR_OPS_NEON_DOTPROD(EVERY, argument) EVERY(argument, neon_dotprod, "neon+dotprod")
#endif

#ifdef TENSOR_OPS_WITHOUT_neon_i8mm
#define TENSOR_OPS_NEON_I8MM(BLOCKS, argument)
#else
#define TENSOR_OPS_NEON_I8MM(BLOCKS, argument) BLOCKS(argument, neon_i8mm, "neon+dotprod+i8mm")
#endif

#ifdef TENSOR_OPS_WITHOUT_neon_bf16
#define TENSOR_OPS_NEON_BF16(BF16, argument)
#else
#define TENSOR_OPS_NEON_BF16(BF16, argument) BF16(argument, neon_bf16, "neon+dotprod+i8mm+bf16")
#endif

#if defined(__x86_64__)
#define TENSOR_OPS_OTHER_VARIANTS(EVERY, BF16, BLOCKS, BOTH, argument) \
  TENSOR_OPS_X86_64_V3_VNNI(BLOCKS, argument)                          \
  TENSOR_OPS_X86_64_V4_VNNI(BLOCKS, argument)                          \
  TENSOR_OPS_X86_64_V4_BF16(BF16, argument)                            \
  TENSOR_OPS_X86_64_V4_AMX(BOTH, argument)
#elif defined(__aarch64__)
#define TENSOR_OPS_OTHER_VARIANTS(EVERY, BF16, BLOCKS, BOTH, argument) \
  TENSOR_OPS_NEON_DOTPROD(EVERY, argument)                             \
  TENSOR_OPS_NEON_I8MM(BLOCKS, argument)                               \
  TENSOR_OPS_NEON_BF16(BF16, argument)
#else
#define TENSOR_OPS_OTHER_VARIANTS(EVERY, BF16, BLOCKS, BOTH, argument)
#endif

#define TENSOR_OPS_FOR_EACH_VARIANT(EVERY, BF16, BLOCKS, BOTH, argument) \
  TENSOR_OPS_FOR_EACH_LEVEL(EVERY, argument)                             \
  TENSOR_OPS_OTHER_VARIANTS(EVERY, BF16, BLOCKS, BOTH, argument)
