// The walk of a call over its arrays: no Python here, only addresses, lengths and strides.
#pragma once

#include <cstddef>

#include "declaration/declaration.h"
#include "launch/run.h"

namespace tensor_ops {

struct Operand {
  char* data;  // null for an optional array that was not given
  DType dtype;
  std::size_t length;             // elements in a row
  std::ptrdiff_t element_stride;  // bytes from one element of a row to the next
  bool is_output;
  bool is_sum;                      // an output that is a sum over all rows
  bool is_direct;                   // set by simplify(): rows can be handed to a kernel as they are
  std::ptrdiff_t stride[kMaxDims];  // bytes, per leading dimension; 0 where broadcast

  std::ptrdiff_t item_size() const { return static_cast<std::ptrdiff_t>(kItemSizes[dtype]); }
};

struct Plan {
  Walk walk;
  std::size_t n;     // elements in a row of the first operand
  std::size_t rows;  // the product of shape
  int dims;          // leading dimensions
  int operands;
  bool streams;  // whether kernels may write past the caches
  std::size_t shape[kMaxDims];
  Operand operand[kMaxArrays];
};

// Merges dimensions that lie behind one another in every operand, for elementwise walks the rows
// too, and finds out which operands are direct.
void simplify(Plan& plan);

// Runs the kernel over all rows. Nothing may be empty. Throws std::bad_alloc, before any work, when
// there is no memory for gathered rows.
void execute(const Plan& plan, Kernel kernel, const double* scalars, int threads);

// The same with a kernel that adds up rows too. How the rows are grouped depends on their number
// and length alone. Throws std::bad_alloc, before any work, where there is no memory for the sums.
void execute_summing(const Plan& plan, const RowKernel& kernel, const double* scalars, int threads);

// Threads had better share each row where there are few and long ones.
bool should_share_rows(const Plan& plan, const RowSteps& steps, int threads);

// Does the steps of one row after another, each row by all threads. Throws std::bad_alloc.
void execute_sharing_rows(const Plan& plan, const RowSteps& steps, const double* scalars,
                          int threads);

}  // namespace tensor_ops
