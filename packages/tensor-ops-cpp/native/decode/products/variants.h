// What products are compiled for: every instruction-set level, and the highest one once more with
// the dot products of bytes that only some of its CPUs have: X(argument, namespace, name).
// CMakeLists.txt compiles formats/ for the same list.
#pragma once

#include "isa/levels.h"

#if defined(TENSOR_OPS_ONE_LEVEL)
#define TENSOR_OPS_DOT_VARIANT(X, argument)
#elif defined(__x86_64__)
#define TENSOR_OPS_DOT_VARIANT(X, argument) X(argument, x86_64_v4_vnni, "x86-64-v4+vnni")
#elif defined(__aarch64__)
#define TENSOR_OPS_DOT_VARIANT(X, argument) X(argument, neon_dotprod, "neon+dotprod")
#else
#define TENSOR_OPS_DOT_VARIANT(X, argument)
#endif

#define TENSOR_OPS_FOR_EACH_VARIANT(X, argument) \
  TENSOR_OPS_FOR_EACH_LEVEL(X, argument)         \
  TENSOR_OPS_DOT_VARIANT(X, argument)
