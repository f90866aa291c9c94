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
  using Found = C;

  struct Row {
    const T *x, *residual, *weight;
    T *y, *h;
    std::size_t n;
    double eps;
    bool streams;
    std::ptrdiff_t x_to_next, residual_to_next;  // bytes to those of the next row
  };
  // Both can be streamed where their lines begin at the same elements.
  static TENSOR_OPS_INLINE bool streams(const Run& run) {
    return run.streams && (run.data[3] - run.data[4]) % std::ptrdiff_t{kLine} == 0 &&
           (run.stride[3] - run.stride[4]) % std::ptrdiff_t{kLine} == 0;
  }
  static TENSOR_OPS_INLINE Row row_at(const Run& run, std::size_t r) {
    return {row_of<const T>(run, 0, r),
            row_of<const T>(run, 1, r),
            row_of<const T>(run, 2, r),
            row_of<T>(run, 3, r),
            row_of<T>(run, 4, r),
            run.n,
            run.scalars[0],
            streams(run),
            run.stride[0],
            run.stride[1]};
  }

  // Whether h is written on the way to the squares, and read back: it stays in the cache, and holds
  // the sum as it is. Not over an input, which a sum that overflows is computed from again.
  static TENSOR_OPS_INLINE bool goes_by_way_of_h(const Row& row) {
    return !row.streams && !is_half<Element> && row.h != row.x && row.h != row.residual;
  }

  template <class Extent>
  static TENSOR_OPS_INLINE auto sums(const Row& row, std::size_t i, Extent extent) {
    return map([](auto x, auto residual) { return x + residual; },
               load_unordered<Element>(row.x + i, extent),
               load_unordered<Element>(row.residual + i, extent));
  }

  template <class Writer>
  static TENSOR_OPS_INLINE double squares(const Row& row, std::size_t begin, std::size_t end,
                                          Writer& writer) {
    const bool keeps_sums = goes_by_way_of_h(row);
    return chunk_sum_of_squares<C>(begin, end, [&](std::size_t i, auto extent) {
      writer.beside(row, i, extent);
      const auto sum = sums(row, i, extent);
      if (keeps_sums) store_unordered<Element>(row.h + i, sum, extent);
      return sum;
    });
  }

  template <class Extent>
  static TENSOR_OPS_INLINE void write(const Row& row, C scale, std::size_t i, Extent extent) {
    const bool kept_sums = goes_by_way_of_h(row);
    const auto sum = kept_sums ? load_unordered<Element>(row.h + i, extent) : sums(row, i, extent);
    const auto scaled = [scale](auto sum, auto weight) { return (sum * scale) * weight; };
    store_unordered<Element>(
        row.y + i, map(scaled, sum, load_unordered<Element>(row.weight + i, extent)), extent);
    if (!kept_sums) store_unordered<Element>(row.h + i, sum, extent);
  }
  template <class Extent>
  static TENSOR_OPS_INLINE void ask_ahead(const Row& row, std::size_t i, Extent extent) {
    prefetch_block(row.x + i, kAhead, extent);
    prefetch_block(row.residual + i, kAhead, extent);
  }
  template <class Extent>
  static TENSOR_OPS_INLINE void ask_next(const Row& row, std::size_t i, Extent extent) {
    prefetch_block(row.x + i, row.x_to_next, extent);
    prefetch_block(row.residual + i, row.residual_to_next, extent);
  }

  static __attribute__((noinline)) void wide_row(const Row& row) {
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
using AddRmsNormKernel = RmsNormalisation<Element, AddRmsNorm<Element>>;

}  // namespace

EXPORT_KERNELS(add_rms_norm, each_dtype<AddRmsNormKernel>())

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
