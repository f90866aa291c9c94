// rms_norm: x * weight / sqrt(mean(x^2) + eps).
#include "op.h"

#if KERNEL_PASS

#include "kernels/rms.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

template <class Element>
struct RmsNormRow {
  using T = typename Element::Storage;
  using C = typename Element::Compute;

  const T *x, *weight;
  T* y;
  std::size_t n;
  double eps;
  bool streams;
  std::size_t ahead;  // bytes from x to what is read next

  static TENSOR_OPS_INLINE RmsNormRow row_at(const Run& run, std::size_t r) {
    return {row_of<const T>(run, 0, r),
            row_of<const T>(run, 1, r),
            row_of<T>(run, 2, r),
            run.n,
            run.scalars[0],
            run.streams,
            pipeline_distance(run, 0, r, sizeof(T))};
  }

  static TENSOR_OPS_INLINE double squares(const RmsNormRow& row, std::size_t begin,
                                          std::size_t end) {
    return chunk_sum_of_squares<C>(begin, end, [&](std::size_t i, auto extent) {
      return load_unordered<Element>(row.x + i, extent);
    });
  }

  static TENSOR_OPS_INLINE void write(const RmsNormRow& row, C scale, std::size_t begin,
                                      std::size_t end) {
    write_unordered_row<Element>(row.streams, begin, end, row.y, [&](std::size_t i, auto extent) {
      prefetch_if_streamed(row.x + i, row.ahead, extent);
      return map([scale](auto value, auto weight) { return (value * scale) * weight; },
                 load_unordered<Element>(row.x + i, extent),
                 load_unordered<Element>(row.weight + i, extent));
    });
  }

  static __attribute__((noinline)) void wide_row(const RmsNormRow& row) {
    const auto value = [&](std::size_t i) { return static_cast<double>(Element::load(row.x[i])); };
    const double scale = wide_rms_scale(row.n, row.eps, value);
#pragma omp simd
    for (std::size_t i = 0; i < row.n; ++i)
      row.y[i] = Element::store(
          static_cast<C>((value(i) * scale) * static_cast<double>(Element::load(row.weight[i]))));
  }
};

template <class Element>
using RmsNorm = RmsNormalisation<Element, RmsNormRow<Element>>;

}  // namespace

EXPORT_KERNELS(rms_norm, each_dtype<RmsNorm>())

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {

DECLARE_OP(rms_norm,
           {
               "rms_norm",
               Walk::kRows,
               Cost{0.13, 0.14, 0.17, 0.33},
               "Root-mean-square normalisation of the last axis.",
               "y = x * weight / sqrt(mean(x**2) + eps)",
               {rows("x", "Input."), row("weight", "Scale of each element of a row."),
                non_negative("eps", 1e-6, "Added to the mean of squares.")},
               {{"y", "The normalised rows."}},
               "B. Zhang and R. Sennrich, Root mean square layer normalization, arXiv:1910.07467.",
           })

}  // namespace tensor_ops

#endif
