// The instruction-set levels compiled in, lowest first: X(argument, namespace, name).
// CMakeLists.txt compiles the kernels for the same list.
#pragma once

#if defined(__x86_64__) && defined(TENSOR_OPS_ONE_LEVEL)
#define TENSOR_OPS_FOR_EACH_LEVEL(X, argument) X(argument, x86_64_v2, "x86-64-v2")
#elif defined(__x86_64__)
#define TENSOR_OPS_FOR_EACH_LEVEL(X, argument) \
  X(argument, x86_64_v2, "x86-64-v2")          \
  X(argument, x86_64_v3, "x86-64-v3")          \
  X(argument, x86_64_v4, "x86-64-v4")
#elif defined(__aarch64__)
#define TENSOR_OPS_FOR_EACH_LEVEL(X, argument) X(argument, neon, "neon")
#else
#define TENSOR_OPS_FOR_EACH_LEVEL(X, argument) X(argument, generic, "generic")
#endif
