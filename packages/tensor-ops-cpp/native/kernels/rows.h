// Rows of a Run, and sums along them.
#pragma once

#include "kernels/memory.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// Row r of array k; T is const for an input.
template <class T>
TENSOR_OPS_INLINE T* row_of(const Run& run, std::size_t k, std::size_t r) {
  return reinterpret_cast<T*>(run.data[k] + static_cast<std::ptrdiff_t>(r) * run.stride[k]);
}

// A pointer so many bytes on.
template <class T>
TENSOR_OPS_INLINE T* advanced(T* row, std::ptrdiff_t bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(row) +
                              static_cast<std::uintptr_t>(bytes));
}

// An optional array is given in all rows of a run or in none.
template <class T>
TENSOR_OPS_INLINE T* optional_row_of(const Run& run, std::size_t k, std::size_t r) {
  return run.data[k] ? row_of<T>(run, k, r) : nullptr;
}

// Sums are kept in a fixed number of lanes, element i always going to the same one: the result does
// not depend on where the row lies in memory. The lanes of every chunk are added up in double,
// which bounds the error of long rows.
template <class V>
struct Lanes {
  V vector[kUnroll] = {};

  TENSOR_OPS_INLINE double total() const {
    static_assert(kUnroll == 4);
    const V all = (vector[0] + vector[1]) + (vector[2] + vector[3]);
    double sum = 0;
    for (std::size_t l = 0; l < kLanes<Lane<V>>; ++l) sum += static_cast<double>(all[l]);
    return sum;
  }
};

// The sum of values(i, extent) over a chunk; a part's missing elements are zeros.
template <class C, class Values>
TENSOR_OPS_INLINE double chunk_sum(std::size_t begin, std::size_t end, Values values) {
  Lanes<Vector<C>> lanes;
  for_blocks<C>(begin, end, [&](std::size_t i, auto extent) {
    const auto block = values(i, extent);
    for (std::size_t u = 0; u < extent.vectors; ++u) lanes.vector[u] += block.vector[u];
  });
  return lanes.total();
}

template <class C, class Values>
TENSOR_OPS_INLINE double chunk_sum_of_squares(std::size_t begin, std::size_t end, Values values) {
  Lanes<Vector<C>> lanes;
  for_blocks<C>(begin, end, [&](std::size_t i, auto extent) {
    const auto block = values(i, extent);
    for (std::size_t u = 0; u < extent.vectors; ++u)
      lanes.vector[u] = fma(block.vector[u], block.vector[u], lanes.vector[u]);
  });
  return lanes.total();
}

// partials[k] of each chunk added up.
inline double total_of(const double* partials, std::size_t chunks, std::size_t k) {
  double total = 0;
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) total += partials[chunk * kPartials + k];
  return total;
}

// What each(begin, end) returns for the chunks of a row, added up.
template <class Each>
TENSOR_OPS_INLINE double sum_of_chunks(std::size_t n, Each each) {
  double total = 0;
  for (std::size_t begin = 0; begin < n; begin += kChunk)
    total += each(begin, n - begin < kChunk ? n : begin + kChunk);
  return total;
}

// The sum of term(i) in double, for the rows that need it.
template <class Term>
TENSOR_OPS_INLINE double wide_sum(std::size_t n, Term term) {
  constexpr std::size_t lanes = 16;
  double lane[lanes] = {};
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
#pragma omp simd
    for (std::size_t l = 0; l < lanes; ++l) lane[l] += term(i + l);
  }
  double total = 0;
  for (; i < n; ++i) total += term(i);
  for (std::size_t l = 0; l < lanes; ++l) total += lane[l];
  return total;
}

// Whether a mean square leaves float32 arithmetic room enough on both sides, so that nothing in the
// sum behind it can have overflowed, or have been lost to underflow.
TENSOR_OPS_INLINE bool is_safe_in(float, double mean_square) {
  return mean_square > 0x1p-100 && mean_square < 0x1p100;
}
TENSOR_OPS_INLINE bool is_safe_in(double, double) { return true; }

// An Op on rows that are measured and then written has: streams(run), whether that may write past
// the caches; Row, with the fields n, y and streams; Found, what is known of a row once it is
// measured; write(row, found, i, extent) for a block of it; and ask_ahead(row, i, extent) and
// ask_next(row, i, extent) for a block of its inputs that is kAhead bytes on, or in the next row.
template <class Element, class Op>
TENSOR_OPS_INLINE void write_measured(const typename Op::Row& of, const typename Op::Found& what,
                                      std::size_t begin, std::size_t end) {
  // Copies that nothing else can see, so that they stay in registers.
  const typename Op::Row row = of;
  const typename Op::Found found = what;
  for_lines<Element>(row.streams, begin, end, row.y, [&](std::size_t i, auto extent) {
    if constexpr (extent.streams) Op::ask_ahead(row, i, extent);
    Op::write(row, found, i, extent);
  });
}

// Writes rows as soon as they are measured.
template <class Element, class Op>
struct AtOnce {
  static constexpr std::size_t rows_at_a_time = 1;
  TENSOR_OPS_INLINE void write(const typename Op::Row& row, const typename Op::Found& found) {
    write_measured<Element, Op>(row, found, 0, row.n);
  }
  template <class Extent>
  TENSOR_OPS_INLINE void beside(const typename Op::Row&, std::size_t, Extent) {}
  TENSOR_OPS_INLINE void finish() {}
};

// Writes each row past the caches while the next one is measured and the one after that is asked
// for: computing and storing do not wait for one another.
template <class Element, class Op>
class OneBehind {
 public:
  static constexpr std::size_t rows_at_a_time = 2;
  TENSOR_OPS_INLINE void write(const typename Op::Row& row, const typename Op::Found& found) {
    row_ = row;
    found_ = found;
    prefetch_last_line(row.y + row.n);
    at_ = write_to_line<Element>(0, row.n, row.y, block_writer());
  }
  // Called for each block that is measured.
  template <class Extent>
  TENSOR_OPS_INLINE void beside(const typename Op::Row& measured, std::size_t i, Extent extent) {
    if constexpr (Extent::vectors == kUnroll) {
      Op::ask_next(measured, i, extent);
      if (at_ + kStep > row_.n) return;
      Op::write(row_, found_, at_, Whole<kUnroll, true>{});
      at_ += kStep;
    }
  }
  TENSOR_OPS_INLINE void finish() {
    write_lines<Element>(at_, row_.n, block_writer());
    at_ = row_.n = 0;
  }

 private:
  static constexpr std::size_t kStep = kUnroll * kLanesFor<Element>;
  TENSOR_OPS_INLINE auto block_writer() const {
    return [this](std::size_t i, auto extent) { Op::write(row_, found_, i, extent); };
  }

  typename Op::Row row_{};
  typename Op::Found found_{};
  std::size_t at_ = 0;
};

// function(writer) with the writer for a run.
template <class Element, class Op, class Function>
TENSOR_OPS_INLINE void with_writer(const Run& run, Function function) {
  // Three rows are in the second-level cache at a time.
  constexpr std::size_t kMostBytes = std::size_t{1} << 17;
  if (Op::streams(run) && run.n * sizeof(typename Element::Storage) <= kMostBytes)
    function(OneBehind<Element, Op>());
  else
    function(AtOnce<Element, Op>());
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
