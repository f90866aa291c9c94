// Root-mean-square normalisation of a row of values, shared by rms_norm and add_rms_norm.
#pragma once

#include "kernels/rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// 1 / sqrt(mean(values^2) + eps) from the sum of squares, or 0 where C has no room for the
// arithmetic.
template <class C>
TENSOR_OPS_INLINE C rms_scale(double squares, std::size_t n, double eps) {
  const double mean_square = squares / static_cast<double>(n) + eps;
  return is_safe_in(C(), mean_square) ? static_cast<C>(1 / __builtin_sqrt(mean_square)) : C(0);
}

// The factor (rows.h) and the scale of a row of C without one, value(i, factor) being a number
// times the factor.
struct WideScale {
  double factor, scale;
};
template <class C, class Value>
TENSOR_OPS_INLINE WideScale wide_rms_scale(std::size_t n, double eps, Value value) {
  const auto mean_square = [=](double factor) {
    const auto square = [=](std::size_t i) { return value(i, factor) * value(i, factor); };
    return wide_sum_of_chunks(n, square) / static_cast<double>(n) + wide_eps(eps, factor);
  };
  const double factor = sizeof(C) == sizeof(float) ? 1 : wide_factor<C>(mean_square(1));
  return {factor, 1 / __builtin_sqrt(mean_square(factor))};
}

// Kernel and steps of an op whose Norm has Row and the other members that run_rows() wants except
// for row(), and besides squares(row, begin, end, writer), the sum of them, and wide_row(row) for
// the rows without a scale. The scale is all that there is of statistics.
template <class Element, class Norm>
struct RmsNormalisation : Norm {
  using C = typename Element::Compute;
  using Row = typename Norm::Row;
  using Statistics = C;

  template <class Writer>
  static TENSOR_OPS_INLINE void row(const Row& row, Writer& writer) {
    const double squares = sum_of_chunks(row.n, [&](std::size_t begin, std::size_t end) {
      return Norm::squares(row, begin, end, writer);
    });
    writer.finish();
    const C scale = rms_scale<C>(squares, row.n, row.eps);
    if (scale == 0)
      Norm::wide_row(row);
    else
      writer.write(row, scale);
  }

  static void run(const Run& run) { run_rows<Element, RmsNormalisation>(run); }

 private:
  static void measure(const RowChunk& chunk) {
    ImmediateWriter<Element, RmsNormalisation> writer;
    chunk.partials[0] = Norm::squares(Norm::row_at(chunk.row, 0), chunk.begin, chunk.end, writer);
  }
  static void find_scale(const Run& run, const double* partials, std::size_t chunks,
                         double* found) {
    const Row row = Norm::row_at(run, 0);
    found[0] = static_cast<double>(rms_scale<C>(total_of(partials, chunks, 0), row.n, row.eps));
  }
  static void write_chunk(const RowChunk& chunk) {
    const Row row = Norm::row_at(chunk.row, 0);
    const C scale = static_cast<C>(chunk.found[0]);
    if (scale != 0)
      write_lines_out_of_line<Element, RmsNormalisation>(
          row, scale, lines_of<Element>(row.streams, chunk.begin, chunk.end, row.y));
    else if (chunk.begin == 0)
      Norm::wide_row(row);
  }

 public:
  static constexpr RowSteps steps{{{measure, find_scale}, {write_chunk, nullptr}}, 2};
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
