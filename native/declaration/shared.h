// TENSOR_OPS_SHARED marks what a backend's Python module uses of the library beside it. The library
// hides the rest; what it offers to everybody else is tensor_ops/abi.h.
#pragma once

#if !defined(_WIN32)
#define TENSOR_OPS_SHARED __attribute__((visibility("default")))
#elif defined(TENSOR_OPS_BUILDS_LIBRARY)
#define TENSOR_OPS_SHARED __declspec(dllexport)
#else
#define TENSOR_OPS_SHARED __declspec(dllimport)
#endif
