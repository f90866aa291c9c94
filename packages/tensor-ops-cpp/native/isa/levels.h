// The instruction-set levels, lowest first: X(argument, namespace, name) for each that is compiled
// in. CMake compiles the kernels for the same list (cmake/levels.cmake), and defines
// TENSOR_OPS_WITHOUT_ and the namespace for each level that it leaves out.
#pragma once

#ifdef TENSOR_OPS_WITHOUT_x86_64_v2
#define TENSOR_OPS_X86_64_V2(X, argument)
#else
#define TENSOR_OPS_X86_64_V2(X, argument) X(argument, x86_64_v2, "x86-64-v2")
#endif

#ifdef TENSOR_OPS_WITHOUT_x86_64_v3
#define TENSOR_OPS_X86_64_V3(X, argument)
#else
#define TENSOR_OPS_X86_64_V3(X, argument) X(argument, x86_64_v3, "x86-64-v3")
#endif

#ifdef TENSOR_OPS_WITHOUT_x86_64_v4
#define TENSOR_OPS_X86_64_V4(X, argument)
#else
#define TENSOR_OPS_X86_64_V4(X, argument) X(argument, x86_64_v4, "x86-64-v4")
#endif

#if defined(__x86_64__)
#define TENSOR_OPS_FOR_EACH_LEVEL(X, argument) \
  TENSOR_OPS_X86_64_V2(X, argument)            \
  TENSOR_OPS_X86_64_V3(X, argument)            \
  TENSOR_OPS_X86_64_V4(X, argument)
#elif defined(__aarch64__)
#define TENSOR_OPS_FOR_EACH_LEVEL(X, argument) X(argument, neon, "neon")
#else
#define TENSOR_OPS_FOR_EACH_LEVEL(X, argument) X(argument, generic, "generic")
#endif
