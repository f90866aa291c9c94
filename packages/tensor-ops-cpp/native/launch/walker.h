// One thread's walk over the rows of a plan: a kernel gets them as they are or gathered.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "launch/plan.h"

namespace tensor_ops {

inline std::ptrdiff_t signed_size(std::size_t n) { return static_cast<std::ptrdiff_t>(n); }

// Copies with a constant size, which compiles to plain moves.
template <std::size_t Item>
void copy_strided(char* to, std::ptrdiff_t to_stride, const char* from, std::ptrdiff_t from_stride,
                  std::size_t count) {
  for (; count > 0; --count, to += to_stride, from += from_stride) std::memcpy(to, from, Item);
}

inline void copy_elements(std::ptrdiff_t item, char* to, std::ptrdiff_t to_stride, const char* from,
                          std::ptrdiff_t from_stride, std::size_t count) {
  switch (item) {
    case 2:
      return copy_strided<2>(to, to_stride, from, from_stride, count);
    case 4:
      return copy_strided<4>(to, to_stride, from, from_stride, count);
    default:
      return copy_strided<8>(to, to_stride, from, from_stride, count);
  }
}

// A row is gathered at a time; in an elementwise walk no more of it than fits the cache.
constexpr std::size_t kMostColumns = 4096;

inline std::size_t gathered_length(const Plan& plan, const Operand& operand) {
  return plan.walk == Walk::kElements ? std::min(operand.length, kMostColumns) : operand.length;
}

// Room for that of every operand that is not direct, rounded up to whole cache lines.
constexpr std::size_t kCacheLine = 64;

inline std::size_t scratch_size(const Plan& plan, const Operand& operand) {
  if (operand.is_direct) return 0;
  return (gathered_length(plan, operand) * kItemSizes[operand.dtype] + kCacheLine - 1) /
         kCacheLine * kCacheLine;
}

inline std::size_t scratch_size(const Plan& plan) {
  std::size_t size = 0;
  for (int k = 0; k < plan.operands; ++k) size += scratch_size(plan, plan.operand[k]);
  return size;
}

// Memory for what `pieces` walkers gather, each from a cache line on.
class Scratch {
 public:
  // Throws std::bad_alloc.
  Scratch(const Plan& plan, int pieces) : each_(scratch_size(plan)) {
    if (each_ == 0) return;
    memory_.reset(new char[each_ * static_cast<std::size_t>(pieces) + kCacheLine]);
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.get());
    aligned_ = memory_.get() + (kCacheLine - address % kCacheLine) % kCacheLine;
  }

  char* of(int piece) const { return aligned_ + each_ * static_cast<std::size_t>(piece); }

 private:
  std::size_t each_;
  std::unique_ptr<char[]> memory_;
  char* aligned_ = nullptr;
};

// The addresses of an element of a row in all arrays.
inline void locate(const Plan& plan, std::size_t row, std::size_t column, char** data) {
  for (int k = 0; k < plan.operands; ++k) {
    const Operand& operand = plan.operand[k];
    data[k] = operand.data;
    if (column) data[k] += signed_size(column) * operand.element_stride;
  }
  for (int d = plan.dims - 1; d >= 0; --d) {
    const auto index = signed_size(row % plan.shape[d]);
    row /= plan.shape[d];
    for (int k = 0; k < plan.operands; ++k)
      if (index) data[k] += index * plan.operand[k].stride[d];
  }
}

// One thread's walk over a block of rows and columns.
class Walker {
 public:
  Walker(const Plan& plan, Kernel kernel, const double* scalars, char* scratch)
      : plan_(plan), kernel_(kernel), scalars_(scalars) {
    for (int k = 0; k < plan.operands; ++k) {
      const Operand& operand = plan.operand[k];
      is_direct_ = is_direct_ && operand.is_direct;
      row_[k] = scratch;
      gathered_[k] = nullptr;
      gathered_count_[k] = 0;
      scratch += scratch_size(plan, operand);
      stride_[k] = plan.dims > 0 ? operand.stride[plan.dims - 1] : 0;
    }
  }

  // Columns other than all of them only in elementwise walks.
  void walk(std::size_t first_row, std::size_t last_row, std::size_t column, std::size_t columns) {
    const std::size_t inner = plan_.dims > 0 ? plan_.shape[plan_.dims - 1] : 1;
    for (std::size_t row = first_row; row < last_row;) {
      const std::size_t count = std::min(inner - row % inner, last_row - row);
      char* data[kMaxArrays];
      locate(plan_, row, column, data);
      if (is_direct_)
        kernel_({data, stride_, count, columns, scalars_, plan_.streams});
      else
        for (std::size_t r = 0; r < count; ++r) walk_gathered(data, r, columns);
      row += count;
    }
  }

 private:
  std::size_t length(const Operand& operand, std::size_t columns) const {
    return plan_.walk == Walk::kElements ? columns : operand.length;
  }

  void walk_gathered(char* const* first, std::size_t r, std::size_t columns) {
    const std::size_t step = plan_.walk == Walk::kElements ? kMostColumns : columns;
    for (std::size_t begin = 0; begin < columns; begin += step) {
      char* source[kMaxArrays];
      for (int k = 0; k < plan_.operands; ++k)
        source[k] = first[k] ? first[k] + signed_size(r) * stride_[k] +
                                   signed_size(begin) * plan_.operand[k].element_stride
                             : nullptr;
      run_gathered(source, std::min(step, columns - begin));
    }
  }

  void run_gathered(char* const* source, std::size_t columns) {
    char* data[kMaxArrays];
    for (int k = 0; k < plan_.operands; ++k) {
      const Operand& operand = plan_.operand[k];
      data[k] = operand.is_direct ? source[k] : row_[k];
      if (operand.is_direct || operand.is_output) continue;
      // A row that is used again, such as a weight, is gathered once. Rows that overlap may begin
      // where a shorter piece of another did.
      const std::size_t count = length(operand, columns);
      if (gathered_[k] == source[k] && gathered_count_[k] >= count) continue;
      copy_elements(operand.item_size(), row_[k], operand.item_size(), source[k],
                    operand.element_stride, count);
      gathered_[k] = source[k];
      gathered_count_[k] = count;
    }
    kernel_({data, stride_, 1, columns, scalars_, false});
    for (int k = 0; k < plan_.operands; ++k) {
      const Operand& operand = plan_.operand[k];
      if (operand.is_output && !operand.is_direct)
        copy_elements(operand.item_size(), source[k], operand.element_stride, row_[k],
                      operand.item_size(), length(operand, columns));
    }
  }

  const Plan& plan_;
  const Kernel kernel_;
  const double* const scalars_;
  bool is_direct_ = true;
  std::ptrdiff_t stride_[kMaxArrays];
  char* row_[kMaxArrays];
  const char* gathered_[kMaxArrays];
  std::size_t gathered_count_[kMaxArrays];
};

}  // namespace tensor_ops
