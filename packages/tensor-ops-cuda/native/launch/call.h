// The interface between the launcher and the kernels: device pointers and sizes.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "declaration/declaration.h"
#include "declaration/dtype.h"

namespace tensor_ops {

constexpr int kMaxAxes = 12;  // of rows, after axes that lie one after another became one

// The place of each array's rows. Within a row, elements are neighbours.
struct Rows {
  std::int64_t count;  // their number
  int axes;            // at least 1; the product of the extents is `count`
  std::int64_t extent[kMaxAxes];
  std::int64_t stride[kMaxArrays][kMaxAxes];  // in elements; 0 where an array repeats
};

// The facts of a device that decide how kernels are launched.
struct DeviceFacts {
  int index;
  int multiprocessors;
  int major, minor;  // compute capability
  bool has_clusters;
};

// A checked call. The arrays are the op's array arguments in declaration order, then its outputs,
// all on one device; an optional array that was not given is a null pointer. An output may be the
// same memory as a full-shape input, row for row and element for element. A row vector has one row,
// which is every row's: its strides are 0. Neither count nor n is 0.
struct Call {
  DType dtype;                    // of the first array
  DType array_dtype[kMaxArrays];  // of each array that was given
  std::size_t variant;            // the value of the op's choice or flag, if it has one
  double scalar[kMaxScalars];     // in declaration order
  void* array[kMaxArrays];
  Rows rows;
  std::int64_t n;  // elements in a row of the first array
  const DeviceFacts& device;
  cudaStream_t stream;
};

// Enqueues the kernels of a call on its stream. Throws CudaError.
using Launcher = void (*)(const Call&);

}  // namespace tensor_ops
