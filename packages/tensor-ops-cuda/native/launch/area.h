// The elements of an operand, or of a part of it, by axes, and copies of them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "declaration/shared.h"
#include "launch/problem.h"

namespace tensor_ops {

// A part of a problem's leading axes.
struct Box {
  std::int64_t begin[kMaxDims];
  std::int64_t extent[kMaxDims];
};

Box whole(const Problem& problem);

// Elements in the order of their axes, at least one; the last axis varies fastest.
struct StridedArea {
  char* data;
  std::int64_t item_size;
  int axes;
  std::int64_t extent[kMaxDims + 1];
  std::int64_t stride[kMaxDims + 1];  // bytes

  std::int64_t count() const;
  std::int64_t bytes() const { return count() * item_size; }
  bool is_contiguous() const { return axes == 1 && (extent[0] == 1 || stride[0] == item_size); }
};

// Appends an axis, merged with the last one if their steps are one contiguous run.
TENSOR_OPS_SHARED void add_axis(StridedArea& area, std::int64_t extent, std::int64_t stride);

// An operand's elements within a box, each once: where the operand repeats along an axis, the area
// has no such axis.
StridedArea area_of(const Problem& problem, const Operand& operand, const Box& box);

// Enqueue a copy on a device between an area and the same elements one after another. Throw
// CudaError.
void gather_area(const StridedArea& from, void* to, cudaStream_t stream);
void scatter_area(void* from, const StridedArea& to, cudaStream_t stream);

// The same in host memory. Large areas are copied by several threads. They may lie at any address.
void pack(const StridedArea& from, char* to);
void unpack(const char* from, const StridedArea& to);

}  // namespace tensor_ops
