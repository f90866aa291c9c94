// An OpCall as the C++ backend runs it: with the kernel and the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "declaration/op_call.h"
#include "declaration/shared.h"
#include "launch/op.h"
#include "launch/plan.h"

namespace tensor_ops {

// Says that no instruction-set level can be used.
[[noreturn]] TENSOR_OPS_SHARED void throw_unavailable(const Op& op, const std::string& reason);

// Writes the sums over no rows, where x is empty: they are zero.
TENSOR_OPS_SHARED void write_empty_sums(const OpCall& call);

class ReadyCall {
 public:
  // threads: 0 for as many as pay. Nothing may be empty.
  TENSOR_OPS_SHARED ReadyCall(const OpCall& call, int threads);

  std::size_t elements() const { return elements_; }
  int threads() const { return threads_; }
  // Needs no GIL. Throws MemoryError, before any work, where rows that are not contiguous or not
  // aligned cannot be gathered.
  TENSOR_OPS_SHARED void run() const;

 private:
  // The one call of the kernel that a thread makes where all arrays are contiguous and aligned, as
  // most are.
  struct ContiguousRows {
    char* data[kMaxArrays];
    std::ptrdiff_t stride[kMaxArrays];
    std::size_t rows, n;
  };

  bool find_contiguous_rows(const OpCall& call);
  bool find_half_rows(const ArrayView& array, std::ptrdiff_t& stride) const;
  void make_plan(const OpCall& call);
  void run_plan() const;

  const Op& op_;
  const std::size_t elements_;
  const RowKernel& kernel_;
  const double* const scalars_;
  int threads_;
  bool streams_;
  bool is_contiguous_;
  ContiguousRows rows_;  // where is_contiguous_ is true
  Plan plan_;            // where it is false
};

}  // namespace tensor_ops
