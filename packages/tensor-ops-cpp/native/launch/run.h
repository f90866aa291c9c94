// The interface between the launcher and the kernels: plain pointers and sizes.
#pragma once

#include <cstddef>

#include "declaration/dtype.h"

namespace tensor_ops {

// A run of rows: row r of array k starts data[k] + r * stride[k] bytes from the first. The arrays
// are the op's array arguments in declaration order, then its outputs. Every row is contiguous and
// aligned to its element; an optional array that was not given is a null pointer. An output may be
// the same memory as a full-shape input, row for row and element for element.
struct Run {
  char* const* data;
  const std::ptrdiff_t* stride;
  std::size_t rows;
  std::size_t n;          // elements in a row of the first array
  const double* scalars;  // the op's scalar arguments in declaration order
  bool streams;           // whether the outputs are to be written past the caches
};

using Kernel = void (*)(const Run&);

// An output that is a sum over rows is in a run the address of a Summed, with a stride of 0: of n
// numbers of the type that x is computed in, which a kernel adds to, and n doubles, for the rows
// whose terms that type has no room for. The launcher adds the numbers to the doubles after
// kMostSummed rows at the latest.
constexpr std::size_t kMostSummed = 32;
struct Summed {
  void* numbers;
  double* totals;
};

// Writes the totals to an array of any stride, in its dtype.
using WriteTotals = void (*)(const double* totals, std::size_t n, char* to, std::ptrdiff_t stride);

// Several threads share one row in steps, each of them done for all chunks of the row, in any
// order, before the next begins. The bits are those of the kernel. A step may leave a few numbers
// about its chunk, from which finish() finds what the later steps need to know of the whole row.
constexpr std::size_t kChunk = 4096;  // elements; the last chunk may have fewer
constexpr std::size_t kPartials = 2, kFound = 4, kMostSteps = 3;

struct RowChunk {
  const Run& row;  // one row
  std::size_t begin, end;
  const double* found;
  double* partials;
};

struct RowStep {
  void (*run)(const RowChunk&);
  // Null after the last step. The partials are those of all chunks, in order.
  void (*finish)(const Run& row, const double* partials, std::size_t chunks, double* found);
};

struct RowSteps {
  RowStep step[kMostSteps];
  std::size_t count;  // 0 where rows cannot be shared
};

// The arrays of a call that are float32 beside a half x: a sum of these. Rows are those of x's
// shape, parameters the others.
enum Mixture { kOneDType = 0, kWideParameters = 1, kWideRows = 2, kMixtures = 4 };

struct RowKernel {
  Kernel run;                // null where the op has no such kernel
  const RowSteps* steps;     // never null where `run` is not
  WriteTotals write_totals;  // null where no output is a sum over rows
};

struct DTypeKernels {
  RowKernel of[kMixtures][kDTypes];
};

// About how many nanoseconds one thread takes for an element of x that is in the cache, by dtype.
// Decides from which size on threads pay. Measured by benchmarks/threads.py; a CPU or an
// instruction-set level that takes longer gets threads a little later than it could.
struct Cost {
  double of[kDTypes];
};

constexpr Cost nanoseconds(double float32, double float16, double bfloat16, double float64) {
  return {{float32, float16, bfloat16, float64}};
}

// An op's file compiled for one instruction-set level: for each variant (the value of the op's
// choice or flag argument, if it has one), a kernel per dtype of x and mixture.
constexpr std::size_t kMaxVariants = 2;
struct KernelTable {
  Cost cost;
  DTypeKernels variant[kMaxVariants];
};

}  // namespace tensor_ops
