// rms_norm: x * weight / sqrt(mean(x^2) + eps).
#include "kernels/rms.h"
#include "op.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// `has_copy` is true of runs with a deinterleaved copy of the weight behind their arrays.
template <class Element, class Parameter, bool has_copy>
struct RmsNorm {
  using T = typename Element::Storage;
  using W = typename Parameter::Storage;
  using C = typename Element::Compute;

  struct Row {
    const T* x;
    const W *weight, *weight_copy;
    T* y;
    std::size_t n;
    double eps;
    bool streams;
    std::ptrdiff_t to_next;  // bytes from x to that of the next row
  };
  static TENSOR_OPS_INLINE Row row_at(const Run& run, std::size_t r) {
    return {row_of<const T>(run, 0, r),
            row_of<const W>(run, 1, r),
            has_copy ? row_of<const W>(run, 3, r) : nullptr,
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
      writer.overlap(row, i, extent);
      return load_unordered<Element>(row.x + i, extent);
    });
  }

  template <class Extent>
  static TENSOR_OPS_INLINE void write(const Row& row, C scale, std::size_t i, Extent extent) {
    const auto scaled = [scale](auto value, auto weight) { return (value * scale) * weight; };
    const auto x = load_unordered<Element>(row.x + i, extent);
    const auto weight =
        load_parameters<Element, Parameter, has_copy>(row.weight, row.weight_copy, i, extent);
    store_unordered<Element>(row.y + i, map(scaled, x, weight), extent);
  }
  template <class Extent>
  static TENSOR_OPS_INLINE void prefetch(const Row& row, std::size_t i, Extent extent,
                                         bool is_next) {
    prefetch_block(row.x + i, is_next ? row.to_next : kAhead, extent);
  }

  static TENSOR_OPS_RARE void wide_row(const Row& row) {
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

template <class Element, class Parameter, bool has_copy = false>
using Normalisation = RmsNormalisation<Element, RmsNorm<Element, Parameter, has_copy>>;

template <class Element, class Parameter>
struct RmsNormKernel : Normalisation<Element, Parameter> {
  static void run(const Run& run) {
    with_copied_parameters<Element, Parameter, 1>(run, [](const Run& given, auto has_copy) {
      Normalisation<Element, Parameter, has_copy>::run(given);
    });
  }
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

EXPORT_KERNELS(rms_norm, nanoseconds(0.13, 0.14, 0.17, 0.33),
               each_dtype_and_parameters<RmsNormKernel>())
