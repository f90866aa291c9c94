// add_rms_norm: h = x + residual; y = h * weight / sqrt(mean(h^2) + eps), y from the sum before
// rounding.
#include "op.h"

#if KERNEL_PASS

#include "kernels/rms.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

template <class Element>
struct AddRmsNormRow {
  using T = typename Element::Storage;
  using C = typename Element::Compute;

  const T *x, *residual, *weight;
  T *y, *h;
  std::size_t n;
  double eps;
  bool streams;
  std::size_t x_ahead, residual_ahead;  // bytes from the rows to what is read next

  static TENSOR_OPS_INLINE AddRmsNormRow row_at(const Run& run, std::size_t r) {
    T *const y = row_of<T>(run, 3, r), *const h = row_of<T>(run, 4, r);
    // Both can be streamed where their lines begin at the same elements.
    const bool streams =
        run.streams && distance_to_line<Element>(y) == distance_to_line<Element>(h);
    return {row_of<const T>(run, 0, r),
            row_of<const T>(run, 1, r),
            row_of<const T>(run, 2, r),
            y,
            h,
            run.n,
            run.scalars[0],
            streams,
            pipeline_distance(run, 0, r, sizeof(T)),
            pipeline_distance(run, 1, r, sizeof(T))};
  }

  // Whether h is written on the way to the squares, and read back: it stays in the cache, and holds
  // the sum as it is. Not over an input, which a sum that overflows is computed from again.
  static TENSOR_OPS_INLINE bool goes_by_way_of_h(const AddRmsNormRow& row) {
    return !row.streams && !is_half<Element> && row.h != row.x && row.h != row.residual;
  }

  static TENSOR_OPS_INLINE double squares(const AddRmsNormRow& row, std::size_t begin,
                                          std::size_t end) {
    const auto sums = [&](std::size_t i, auto extent) {
      return map([](auto x, auto residual) { return x + residual; },
                 load_unordered<Element>(row.x + i, extent),
                 load_unordered<Element>(row.residual + i, extent));
    };
    if (!goes_by_way_of_h(row)) return chunk_sum_of_squares<C>(begin, end, sums);
    return chunk_sum_of_squares<C>(begin, end, [&](std::size_t i, auto extent) {
      const auto sum = sums(i, extent);
      store_unordered<Element>(row.h + i, sum, extent);
      return sum;
    });
  }

  static TENSOR_OPS_INLINE void write(const AddRmsNormRow& row, C scale, std::size_t begin,
                                      std::size_t end) {
    const auto normalised = [&](auto sum, std::size_t i, auto extent) {
      return map([scale](auto sum, auto weight) { return (sum * scale) * weight; }, sum,
                 load_unordered<Element>(row.weight + i, extent));
    };
    if (goes_by_way_of_h(row))
      return write_unordered_row<Element>(
          false, begin, end, row.y, [&](std::size_t i, auto extent) {
            return normalised(load_unordered<Element>(row.h + i, extent), i, extent);
          });
    for_lines<Element>(row.streams, begin, end, row.y, [&](std::size_t i, auto extent) {
      prefetch_if_streamed(row.x + i, row.x_ahead, extent);
      prefetch_if_streamed(row.residual + i, row.residual_ahead, extent);
      const auto sum = map([](auto x, auto residual) { return x + residual; },
                           load_unordered<Element>(row.x + i, extent),
                           load_unordered<Element>(row.residual + i, extent));
      const auto y = normalised(sum, i, extent);
      store_unordered<Element>(row.y + i, y, extent);
      store_unordered<Element>(row.h + i, sum, extent);
    });
  }

  static __attribute__((noinline)) void wide_row(const AddRmsNormRow& row) {
    const auto sum = [&](std::size_t i) {
      return static_cast<double>(Element::load(row.x[i])) +
             static_cast<double>(Element::load(row.residual[i]));
    };
    const double scale = wide_rms_scale(row.n, row.eps, sum);
#pragma omp simd
    for (std::size_t i = 0; i < row.n; ++i) {
      const double value = sum(i);
      row.y[i] = Element::store(
          static_cast<C>((value * scale) * static_cast<double>(Element::load(row.weight[i]))));
      row.h[i] = Element::store(static_cast<C>(value));
    }
  }
};

template <class Element>
using AddRmsNorm = RmsNormalisation<Element, AddRmsNormRow<Element>>;

}  // namespace

EXPORT_KERNELS(add_rms_norm, each_dtype<AddRmsNorm>())

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {

DECLARE_OP(add_rms_norm,
           {
               "add_rms_norm",
               Walk::kRows,
               Cost{0.26, 0.23, 0.28, 0.52},
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
