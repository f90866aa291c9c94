// rms_norm: x * weight / sqrt(mean(x^2) + eps).
#include "op.h"

#if KERNEL_PASS

#include "kernels/rms.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// `is_once` is true of runs whose weight is taken apart once: its copy follows the arrays.
template <class Element, class Parameter, bool is_once = false>
struct RmsNorm {
  using T = typename Element::Storage;
  using W = typename Parameter::Storage;
  using C = typename Element::Compute;
  using Found = C;

  struct Row {
    const T* x;
    const W *weight, *weight_apart;
    T* y;
    std::size_t n;
    double eps;
    bool streams;
    std::ptrdiff_t to_next;  // bytes from x to that of the next row
  };
  static TENSOR_OPS_INLINE bool streams(const Run& run) { return run.streams; }
  static TENSOR_OPS_INLINE Row row_at(const Run& run, std::size_t r) {
    return {row_of<const T>(run, 0, r),
            row_of<const W>(run, 1, r),
            is_once ? row_of<const W>(run, 3, r) : nullptr,
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
    const auto x = load_unordered<Element>(row.x + i, extent);
    const auto weight =
        load_parameters<Element, Parameter, is_once>(row.weight, row.weight_apart, i, extent);
    store_unordered<Element>(row.y + i, map(scaled, x, weight), extent);
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
    const auto value = [&](std::size_t i, double factor) {
      return static_cast<double>(Element::load(row.x[i])) * factor;
    };
    const WideScale wide = wide_rms_scale<C>(row.n, row.eps, value);
#pragma omp simd
    for (std::size_t i = 0; i < row.n; ++i) {
      const double weight = static_cast<double>(Parameter::load(row.weight[i]));
      row.y[i] = Element::store(static_cast<C>((value(i, wide.factor) * wide.scale) * weight));
    }
  }
};

template <class Element, class Parameter>
struct RmsNormKernel : RmsNormalisation<Element, RmsNorm<Element, Parameter>> {
  static void run(const Run& run) {
    if constexpr (takes_apart<Element, Parameter>)
      if (is_taken_apart_once<Element>(run, 1, run.stride[2])) return run_once(run);
    RmsNormalisation<Element, RmsNorm<Element, Parameter>>::run(run);
  }

 private:
  static __attribute__((noinline)) void run_once(const Run& run) {
    using W = typename Parameter::Storage;
    alignas(kLine) W weight[kMostTakenApart];
    take_apart<Element, Parameter>(run.n, weight, row_of<const W>(run, 1, 0),
                                   row_of<const typename Element::Storage>(run, 2, 0));
    char* const data[] = {run.data[0], run.data[1], run.data[2], reinterpret_cast<char*>(weight)};
    const std::ptrdiff_t stride[] = {run.stride[0], run.stride[1], run.stride[2], 0};
    RmsNormalisation<Element, RmsNorm<Element, Parameter, true>>::run(
        {data, stride, run.rows, run.n, run.scalars, run.streams});
  }
};

}  // namespace

EXPORT_KERNELS(rms_norm, each_dtype_and_parameters<RmsNormKernel>())

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {

DECLARE_OP(rms_norm, nanoseconds(0.13, 0.14, 0.17, 0.33),
           {
               "rms_norm",
               Walk::kRows,
               "Root-mean-square normalisation of the last axis.",
               "y = x * weight / sqrt(mean(x**2) + eps)",
               {rows("x", "Input."), row("weight", "Scale of each element of a row."),
                non_negative("eps", 1e-6, "Added to the mean of squares.")},
               {{"y", "The normalised rows."}},
               "B. Zhang and R. Sennrich, Root mean square layer normalization, arXiv:1910.07467.",
           })

}  // namespace tensor_ops

#endif
