// add_rms_norm: h = x + residual; y = h * weight / sqrt(mean(h^2) + eps), y from the sum before
// rounding.
#include "op.h"

#if KERNEL_PASS

#include "kernels/rms.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

template <class Element>
struct AddRmsNorm {
  using T = typename Element::Storage;
  using C = typename Element::Compute;

  struct Row {
    const T *x, *residual, *weight;
    T *y, *h;
    std::size_t n;
    double eps;
    bool streams;
    std::ptrdiff_t x_ahead, residual_ahead;  // bytes from the row to what is read next
  };

  template <class Extent>
  static TENSOR_OPS_INLINE auto sums(const Row& row, std::size_t i, Extent extent) {
    return map([](auto x, auto residual) { return x + residual; },
               load_unordered<Element>(row.x + i, extent),
               load_unordered<Element>(row.residual + i, extent));
  }

  static TENSOR_OPS_INLINE void row(const Row& row) {
    if (!row.streams && !is_half<Element>) return row_by_way_of_h(row);
    const C scale = rms_scale<Element>(
        row.n, row.eps, [&](std::size_t i, auto extent) { return sums(row, i, extent); });
    if (scale == 0) return wide_row(row);
    // Both outputs can be streamed where their lines begin at the same elements.
    const bool streams =
        row.streams && distance_to_line<Element>(row.y) == distance_to_line<Element>(row.h);
    for_lines<Element>(streams, row.n, row.y, [&](std::size_t i, auto extent) {
      prefetch_if_streamed(row.x + i, row.x_ahead, extent);
      prefetch_if_streamed(row.residual + i, row.residual_ahead, extent);
      const auto sum = sums(row, i, extent);
      const auto normalised = map([scale](auto sum, auto weight) { return (sum * scale) * weight; },
                                  sum, load_unordered<Element>(row.weight + i, extent));
      store_unordered<Element>(row.y + i, normalised, extent);
      store_unordered<Element>(row.h + i, sum, extent);
    });
  }

  // Where h holds the sum as it is, and stays in the cache.
  static TENSOR_OPS_INLINE void row_by_way_of_h(const Row& row) {
    const C scale = rms_scale<Element>(row.n, row.eps, [&](std::size_t i, auto extent) {
      const auto sum = sums(row, i, extent);
      store_unordered<Element>(row.h + i, sum, extent);
      return sum;
    });
    if (scale == 0)
      return wide_row_of(
          row, [&](std::size_t i) { return static_cast<double>(Element::load(row.h[i])); });
    write_unordered_row<Element>(false, row.n, row.y, [&](std::size_t i, auto extent) {
      return map([scale](auto sum, auto weight) { return (sum * scale) * weight; },
                 load_unordered<Element>(row.h + i, extent),
                 load_unordered<Element>(row.weight + i, extent));
    });
  }

  static __attribute__((noinline)) void wide_row(const Row& row) {
    wide_row_of(row, [&](std::size_t i) {
      return static_cast<double>(Element::load(row.x[i])) +
             static_cast<double>(Element::load(row.residual[i]));
    });
  }

  template <class Sum>
  static TENSOR_OPS_INLINE void wide_row_of(const Row& row, Sum sum) {
    const double scale = wide_rms_scale(row.n, row.eps, sum);
#pragma omp simd
    for (std::size_t i = 0; i < row.n; ++i) {
      const double value = sum(i);
      row.y[i] = Element::store(
          static_cast<C>((value * scale) * static_cast<double>(Element::load(row.weight[i]))));
      row.h[i] = Element::store(static_cast<C>(value));
    }
  }

  static void run(const Run& run) {
    for (std::size_t r = 0; r < run.rows; ++r)
      row({row_of<const T>(run, 0, r), row_of<const T>(run, 1, r), row_of<const T>(run, 2, r),
           row_of<T>(run, 3, r), row_of<T>(run, 4, r), run.n, run.scalars[0], run.streams,
           pipeline_distance(run, 0, r, sizeof(T)), pipeline_distance(run, 1, r, sizeof(T))});
    if (run.streams) finish_streams();
  }
};

}  // namespace

EXPORT_KERNELS(add_rms_norm, each_dtype<AddRmsNorm>())

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {

DECLARE_OP(add_rms_norm,
           {
               "add_rms_norm",
               Walk::kRows,
               Cost::kArithmetic,
               "Residual addition, then root-mean-square normalisation of the last axis.",
               "h = x + residual\n    y = h * weight / sqrt(mean(h**2) + eps)",
               {rows("x", "Input."), rows("residual", "Added to x."),
                row("weight", "Scale of each element of a row."),
                non_negative("eps", 1e-6, "Added to the mean of squares.")},
               {{"y", "The normalised rows."}, {"h", "The sum."}},
               "y is computed from the sum before it is rounded to a half dtype.\n"
               "B. Zhang and R. Sennrich, Root mean square layer normalization, arXiv:1910.07467.",
           })

}  // namespace tensor_ops

#endif
