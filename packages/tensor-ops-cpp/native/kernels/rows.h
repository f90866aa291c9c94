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

// load_unordered() deinterleaves parameters where elements come in pairs and they do not.
template <class Element, class Parameter>
constexpr bool deinterleaves = comes_in_pairs<Element> && !comes_in_pairs<Parameter>;

// A block of parameters in the order of load_unordered<Element>(). Blocks of two or more vectors
// come from `copy`, which is in that order, where there is one; the others are in the order of
// memory in any case.
template <class Element, class Parameter, bool has_copy, class Extent>
TENSOR_OPS_INLINE auto load_parameters(const typename Parameter::Storage* parameters,
                                       [[maybe_unused]] const typename Parameter::Storage* copy,
                                       std::size_t i, Extent extent) {
  if constexpr (has_copy && Extent::vectors % 2 == 0)
    return load<Parameter>(copy + i, extent);
  else
    return load_unordered<Parameter, Element>(parameters + i, extent);
}

constexpr std::size_t kMostCopied = std::size_t{1} << 13;  // parameters in all

// function(run, std::true_type()) with deinterleaved copies of the parameters behind the arrays of
// the run: its rows, so many parameters, of which the last may be missing, and its result.
template <class Element, class Parameter, std::size_t parameters, class Function>
__attribute__((noinline)) void run_with_copies(const Run& run, Function function) {
  using P = typename Parameter::Storage;
  constexpr std::size_t lanes = kLanesFor<Element>, arrays = parameters + 2;
  alignas(kLine) P copies[kMostCopied];
  char* data[arrays + parameters];
  std::ptrdiff_t stride[arrays + parameters] = {};
  for (std::size_t k = 0; k < arrays; ++k) {
    data[k] = run.data[k];
    stride[k] = run.stride[k];
  }
  const auto y = row_of<const typename Element::Storage>(run, arrays - 1, 0);
  for (std::size_t p = 0; p < parameters; ++p) {
    P* const copy = copies + p * (kMostCopied / parameters);
    data[arrays + p] = reinterpret_cast<char*>(copy);
    const P* const from = optional_row_of<const P>(run, 1 + p, 0);
    if (!from) continue;
    for (std::size_t i = distance_to_line<Element>(y); i + 2 * lanes <= run.n; i += 2 * lanes) {
      const auto pair = load_deinterleaved<Parameter>(from + i);
      store_vector(copy + i, pair.hi);
      store_vector(copy + i + lanes, pair.lo);
    }
  }
  function(Run{data, stride, run.rows, run.n, run.scalars, run.streams}, std::true_type());
}

// The same if it pays, else function(run, std::false_type()). Copies pay where there are rows
// enough, and blocks of two or more vectors begin at the same elements of all rows, as the lines of
// the results do.
template <class Element, class Parameter, std::size_t parameters, class Function>
TENSOR_OPS_INLINE void with_copied_parameters(const Run& run, Function function) {
  constexpr std::size_t kFewestRows = 8;
  if constexpr (deinterleaves<Element, Parameter>)
    if (run.rows >= kFewestRows && run.n * parameters <= kMostCopied &&
        run.n >= kFewestInLines<Element> &&
        run.stride[parameters + 1] % static_cast<std::ptrdiff_t>(kLine) == 0)
      return run_with_copies<Element, Parameter, parameters>(run, function);
  function(run, std::false_type());
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

// The sum of each(begin, end) over the chunks of a row.
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

// The same by chunks, which bounds the error of long rows.
template <class Term>
TENSOR_OPS_INLINE double wide_sum_of_chunks(std::size_t n, Term term) {
  return sum_of_chunks(n, [=](std::size_t begin, std::size_t end) {
    return wide_sum(end - begin, [=](std::size_t i) { return term(begin + i); });
  });
}

// Such a mean square leaves the arithmetic of a type room enough on both sides, so that nothing in
// the sum behind it can have overflowed, or have been lost to underflow. NaN does not.
TENSOR_OPS_INLINE bool is_safe_in(float, double mean_square) {
  return mean_square > 0x1p-100 && mean_square < 0x1p100;
}
TENSOR_OPS_INLINE bool is_safe_in(double, double mean_square) {
  return mean_square > 0x1p-960 && mean_square < __builtin_inf();
}

// Rows whose sums leave the range of a type are computed in double, multiplied by a power of two.
// That is 1 unless the type is double itself: then it brings numbers about as large as `magnitude`,
// whose squares are outside the range of double, to the middle of that range.
template <class C>
TENSOR_OPS_INLINE double wide_factor(double magnitude) {
  if (sizeof(C) == sizeof(float)) return 1;
  return magnitude > 1 ? 0x1p-600 : 0x1p600;
}

// eps for such a row. Where the row is 0, eps is all that is left of a divisor: it may not vanish.
TENSOR_OPS_INLINE double wide_eps(double eps, double factor) {
  const double scaled = (eps * factor) * factor;
  return eps > 0 && scaled < __DBL_MIN__ ? __DBL_MIN__ : scaled;
}

// An op whose rows are measured before they are written has:
//   Row, with the fields n, y and streams, and row_at(run, r);
//   Statistics, what is known of a row once it is measured;
//   row(row, writer), which measures a row, with writer.overlap(row, i, extent) for each block,
//   then
//     calls writer.finish(), and hands the row and its statistics to writer.write();
//   write(row, statistics, i, extent), which writes a block;
//   prefetch(row, i, extent, is_next) of a block of its inputs, kAhead bytes on or in the next row.
//
// write_lines() is inlined where rows are written one after another, since a call would slow short
// rows down. It takes copies, which nothing else can see, so that they stay in registers.
template <class Element, class Op>
TENSOR_OPS_INLINE void write_lines(typename Op::Row row, typename Op::Statistics statistics,
                                   Lines lines) {
  for_lines<Element>(lines, [&](std::size_t i, auto extent) TENSOR_OPS_INLINE_LAMBDA {
    if constexpr (extent.streams) Op::prefetch(row, i, extent, false);
    Op::write(row, statistics, i, extent);
  });
}

// The same for the last row of a run and for a share of a wide row.
template <class Element, class Op>
__attribute__((noinline)) void write_lines_out_of_line(typename Op::Row row,
                                                       typename Op::Statistics statistics,
                                                       Lines lines) {
  write_lines<Element, Op>(row, statistics, lines);
}

// Writes rows as soon as they are measured.
template <class Element, class Op>
struct ImmediateWriter {
  TENSOR_OPS_INLINE void write(const typename Op::Row& row,
                               const typename Op::Statistics& statistics) {
    write_lines<Element, Op>(row, statistics, lines_of<Element>(row.streams, 0, row.n, row.y));
  }
  template <class Extent>
  TENSOR_OPS_INLINE void overlap(const typename Op::Row&, std::size_t, Extent) {}
  TENSOR_OPS_INLINE void finish() {}
  TENSOR_OPS_INLINE void finish_last() const {}
};

// Writes each row, of kFewestInLines elements or more, past the caches while the next one is
// measured and the one after that is prefetched: computing and storing do not wait for one another.
template <class Element, class Op>
class DelayedWriter {
 public:
  TENSOR_OPS_INLINE void write(const typename Op::Row& row,
                               const typename Op::Statistics& statistics) {
    row_ = row;
    statistics_ = statistics;
    prefetch_last_line(row.y + row.n);
    at_ = distance_to_line<Element>(row.y);
    write_lines<Element, Op>(row, statistics, {0, at_, at_, false});
  }
  template <class Extent>
  TENSOR_OPS_INLINE void overlap(const typename Op::Row& measured, std::size_t i, Extent extent) {
    if constexpr (Extent::vectors == kUnroll) {
      Op::prefetch(measured, i, extent, true);
      if (at_ + kStep > row_.n) return;
      Op::write(row_, statistics_, at_, Whole<kUnroll, true>{});
      at_ += kStep;
    }
  }
  TENSOR_OPS_INLINE void finish() {
    write_lines<Element, Op>(row_, statistics_, {at_, at_, row_.n, true});
    at_ = row_.n = 0;
  }
  TENSOR_OPS_INLINE void finish_last() const {
    write_lines_out_of_line<Element, Op>(row_, statistics_, {at_, at_, row_.n, true});
  }

 private:
  static constexpr std::size_t kStep = kUnroll * kLanesFor<Element>;

  typename Op::Row row_{};
  typename Op::Statistics statistics_{};
  std::size_t at_ = 0;
};

// The driver of such an op, for all rows of a run. The context goes to row_at().
template <class Element, class Op, class... Context>
TENSOR_OPS_INLINE void run_rows(const Run& run, Context... context) {
  const auto run_with = [&](auto writer) TENSOR_OPS_INLINE_LAMBDA {
    for (std::size_t r = 0; r < run.rows; ++r) Op::row(Op::row_at(run, r, context...), writer);
    writer.finish_last();
  };
  // Three rows are in the second-level cache at a time.
  constexpr std::size_t kMostBytes = std::size_t{1} << 17;
  if (Op::row_at(run, 0, context...).streams && run.n >= kFewestInLines<Element> &&
      run.n * sizeof(typename Element::Storage) <= kMostBytes)
    run_with(DelayedWriter<Element, Op>());
  else
    run_with(ImmediateWriter<Element, Op>());
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
