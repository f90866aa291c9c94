// rms_norm: x * weight / sqrt(mean(x^2) + eps).
#include "op.h"

#if KERNEL_PASS

#include "kernels/rms.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

template <class Element>
struct RmsNorm {
  using T = typename Element::Storage;
  using C = typename Element::Compute;
  using Found = C;

  struct Row {
    const T *x, *weight;
    T* y;
    std::size_t n;
    double eps;
    bool streams;
    std::ptrdiff_t to_next;  // bytes from x to that of the next row
  };
  static TENSOR_OPS_INLINE bool streams(const Run& run) { return run.streams; }
  static TENSOR_OPS_INLINE Row row_at(const Run& run, std::size_t r) {
    return {row_of<const T>(run, 0, r),
            row_of<const T>(run, 1, r),
            row_of<T>(run, 2, r),
            run.n,
            run.scalars[0],
            run.streams,
            run.stride[0]};
  }

  template <class Writer>
  static TENSOR_OPS_INLINE double squares(const Row& row, std::size_t begin, std::size_t end,
                                          Writer& writer) {
    return chunk_sum_of_squares<C>(begin, end, [&](std::size_t i, auto extent) {
      writer.beside(row, i, extent);
      return load_unordered<Element>(row.x + i, extent);
    });
  }

  template <class Extent>
  static TENSOR_OPS_INLINE void write(const Row& row, C scale, std::size_t i, Extent extent) {
    const auto scaled = [scale](auto value, auto weight) { return (value * scale) * weight; };
    store_unordered<Element>(row.y + i,
                             map(scaled, load_unordered<Element>(row.x + i, extent),
                                 load_unordered<Element>(row.weight + i, extent)),
                             extent);
  }
  template <class Extent>
  static TENSOR_OPS_INLINE void ask_ahead(const Row& row, std::size_t i, Extent extent) {
    prefetch_block(row.x + i, kAhead, extent);
  }
  template <class Extent>
  static TENSOR_OPS_INLINE void ask_next(const Row& row, std::size_t i, Extent extent) {
    prefetch_block(row.x + i, row.to_next, extent);
  }

  static __attribute__((noinline)) void wide_row(const Row& row) {
    const auto value = [&](std::size_t i) { return static_cast<double>(Element::load(row.x[i])); };
    const double scale = wide_rms_scale(row.n, row.eps, value);
#pragma omp simd
    for (std::size_t i = 0; i < row.n; ++i)
      row.y[i] = Element::store(
          static_cast<C>((value(i) * scale) * static_cast<double>(Element::load(row.weight[i]))));
  }
};

template <class Element>
using RmsNormKernel = RmsNormalisation<Element, RmsNorm<Element>>;

}  // namespace

EXPORT_KERNELS(rms_norm, each_dtype<RmsNormKernel>())

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
