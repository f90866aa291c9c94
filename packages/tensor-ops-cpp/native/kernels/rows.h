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

// Whether load_unordered() takes parameters apart, because elements come in pairs and they do not.
template <class Element, class Parameter>
constexpr bool takes_apart = comes_in_pairs<Element> && !comes_in_pairs<Parameter>;

// Parameters are taken apart once for a run of rows, in a copy on the stack, instead of for each
// row: where there are rows enough, the parameters have room, and blocks of two or more vectors
// begin at the same elements of all rows, as the results' lines do.
constexpr std::size_t kMostTakenApart = std::size_t{1} << 13;  // of all parameters together
constexpr std::size_t kFewestRows = 8;                         // below that it does not pay
template <class Element>
TENSOR_OPS_INLINE bool is_taken_apart_once(const Run& run, std::size_t parameters,
                                           std::ptrdiff_t y_stride) {
  return run.rows >= kFewestRows && run.n * parameters <= kMostTakenApart &&
         run.n >= 2 * kUnroll * kLanesFor<Element> &&
         y_stride % static_cast<std::ptrdiff_t>(kLine) == 0;
}
template <class Element, class Parameter>
TENSOR_OPS_INLINE void take_apart(std::size_t n, typename Parameter::Storage* to,
                                  const typename Parameter::Storage* from,
                                  const typename Element::Storage* y) {
  constexpr std::size_t lanes = kLanesFor<Element>;
  for (std::size_t i = distance_to_line<Element>(y); i + 2 * lanes <= n; i += 2 * lanes) {
    const auto pair = load_apart<Parameter>(from + i);
    store_vector(to + i, pair.hi);
    store_vector(to + i + lanes, pair.lo);
  }
}

// A block of parameters in the order of load_unordered<Element>(); `apart` is that copy of them
// where there is one. Less than two vectors are in the order of memory in any case.
template <class Element, class Parameter, bool is_once, class Extent>
TENSOR_OPS_INLINE auto load_parameters(const typename Parameter::Storage* parameters,
                                       [[maybe_unused]] const typename Parameter::Storage* apart,
                                       std::size_t i, Extent extent) {
  if constexpr (is_once && Extent::vectors % 2 == 0)
    return load<Parameter>(apart + i, extent);
  else
    return load_unordered<Parameter, Element>(parameters + i, extent);
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

// The same by chunks, which bounds the error of long rows.
template <class Term>
TENSOR_OPS_INLINE double wide_sum_of_chunks(std::size_t n, Term term) {
  return sum_of_chunks(n, [=](std::size_t begin, std::size_t end) {
    return wide_sum(end - begin, [=](std::size_t i) { return term(begin + i); });
  });
}

// Whether a mean square leaves the arithmetic of a type room enough on both sides, so that nothing
// in the sum behind it can have overflowed, or have been lost to underflow. NaN does not.
TENSOR_OPS_INLINE bool is_safe_in(float, double mean_square) {
  return mean_square > 0x1p-100 && mean_square < 0x1p100;
}
TENSOR_OPS_INLINE bool is_safe_in(double, double mean_square) {
  return mean_square > 0x1p-960 && mean_square < __builtin_inf();
}

// Rows that a type has no room for are computed in double, multiplied by a power of two that is 1
// unless they are double themselves: then it brings what is about as large as `magnitude`, a number
// whose square is outside double's range, to the middle of that range.
template <class C>
TENSOR_OPS_INLINE double wide_factor(double magnitude) {
  if (sizeof(C) == sizeof(float)) return 1;
  return magnitude > 1 ? 0x1p-600 : 0x1p600;
}

// An eps of such a row. It may be all there is in a divisor, and then is not 0.
TENSOR_OPS_INLINE double wide_eps(double eps, double factor) {
  const double scaled = (eps * factor) * factor;
  return eps > 0 && scaled < __DBL_MIN__ ? __DBL_MIN__ : scaled;
}

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
  const auto write = [&](std::size_t i, auto extent) TENSOR_OPS_INLINE_LAMBDA {
    if constexpr (extent.streams) Op::ask_ahead(row, i, extent);
    Op::write(row, found, i, extent);
  };
  for_lines<Element>(row.streams, begin, end, row.y, write);
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
    return [this](std::size_t i, auto extent)
               TENSOR_OPS_INLINE_LAMBDA { Op::write(row_, found_, i, extent); };
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
