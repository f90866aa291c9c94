// What products are compiled for: every instruction-set level, and the highest one again with
// instructions that only some of its CPUs have. The first arguments are macros for the variants
// that have every format, those that have bf16 only and those that have integers only:
// EVERY(argument, namespace, name). cmake/levels.cmake compiles formats/ for the same list.
#pragma once

#include "isa/levels.h"

#if defined(__x86_64__) && !defined(TENSOR_OPS_WITHOUT_x86_64_v4)
#define TENSOR_OPS_OTHER_VARIANTS(EVERY, BF16, BLOCKS, argument) \
  EVERY(argument, x86_64_v4_vnni, "x86-64-v4+vnni")              \
  BF16(argument, x86_64_v4_bf16, "x86-64-v4+vnni+bf16")          \
  BLOCKS(argument, x86_64_v4_amx, "x86-64-v4+vnni+bf16+amx")
#elif defined(__aarch64__) && !defined(TENSOR_OPS_WITHOUT_neon_dotprod)
#define TENSOR_OPS_OTHER_VARIANTS(EVERY, BF16, BLOCKS, argument) \
  EVERY(argument, neon_dotprod, "neon+dotprod")                  \
  BLOCKS(argument, neon_i8mm, "neon+dotprod+i8mm")               \
  BF16(argument, neon_bf16, "neon+dotprod+i8mm+bf16")
#else
#define TENSOR_OPS_OTHER_VARIANTS(EVERY, BF16, BLOCKS, argument)
#endif

#define TENSOR_OPS_FOR_EACH_VARIANT(EVERY, BF16, BLOCKS, argument) \
  TENSOR_OPS_FOR_EACH_LEVEL(EVERY, argument)                       \
  TENSOR_OPS_OTHER_VARIANTS(EVERY, BF16, BLOCKS, argument)
