// add_rms_norm: h = x + residual; y = h * weight / sqrt(mean(h^2) + eps), y from the sum before
// rounding.
#include "kernels/rms.h"
#include "op.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// h is of the residual's type.
template <class Element, class Parameter, class Residual>
struct AddRmsNorm {
  using T = typename Element::Storage;
  using W = typename Parameter::Storage;
  using R = typename Residual::Storage;
  using C = typename Element::Compute;
  // Results are written in the order (memory.h) that suits h, whose elements may be wider than x's.
  using Order = Residual;

  struct Row {
    const T* x;
    const R* residual;
    const W* weight;
    T* y;
    R* h;
    std::size_t n;
    double eps;
    bool streams;
    std::ptrdiff_t x_to_next, residual_to_next;  // bytes to those of the next row
  };
  // Both can be streamed where their lines begin at the same elements.
  static TENSOR_OPS_INLINE bool can_stream(const Run& run) {
    constexpr std::size_t ratio = sizeof(R) / sizeof(T);
    const auto starts_apart = reinterpret_cast<std::uintptr_t>(run.data[3]) * ratio -
                              reinterpret_cast<std::uintptr_t>(run.data[4]);
    const auto strides_apart =
        static_cast<std::size_t>(run.stride[3]) * ratio - static_cast<std::size_t>(run.stride[4]);
    return run.streams && starts_apart % kLine == 0 && strides_apart % kLine == 0;
  }
  static TENSOR_OPS_INLINE Row row_at(const Run& run, std::size_t r) {
    return {row_of<const T>(run, 0, r),
            row_of<const R>(run, 1, r),
            row_of<const W>(run, 2, r),
            row_of<T>(run, 3, r),
            row_of<R>(run, 4, r),
            run.n,
            run.scalars[0],
            can_stream(run),
            run.stride[0],
            run.stride[1]};
  }

  // h is written on the way to the squares, and read back: it stays in the cache, and holds the sum
  // as it is. Not over an input, which a sum that overflows is computed from again.
  static TENSOR_OPS_INLINE bool goes_by_way_of_h(const Row& row) {
    const void* const h = row.h;
    return !row.streams && !is_half<Element> && h != row.x && h != row.residual;
  }

  template <class InOrder, class Extent>
  static TENSOR_OPS_INLINE auto sums(const Row& row, std::size_t i, Extent extent) {
    return map([](auto x, auto residual) { return x + residual; },
               load_unordered<Element, InOrder>(row.x + i, extent),
               load_unordered<Residual, InOrder>(row.residual + i, extent));
  }

  template <class Writer>
  static TENSOR_OPS_INLINE double squares(const Row& row, std::size_t begin, std::size_t end,
                                          Writer& writer) {
    const bool keeps_sums = goes_by_way_of_h(row);
    return chunk_sum_of_squares<C>(begin, end, [&](std::size_t i, auto extent) {
      writer.overlap(row, i, extent);
      const auto sum = sums<Element>(row, i, extent);
      if constexpr (!is_half<Element>)
        if (keeps_sums) store_unordered<Residual>(row.h + i, sum, extent);
      return sum;
    });
  }

  template <class Extent>
  static TENSOR_OPS_INLINE void write(const Row& row, C scale, std::size_t i, Extent extent) {
    const bool kept_sums = goes_by_way_of_h(row);
    const auto sum = kept_sums ? load_unordered<Residual, Order>(row.h + i, extent)
                               : sums<Order>(row, i, extent);
    const auto weight = load_unordered<Parameter, Order>(row.weight + i, extent);
    const auto scaled = [scale](auto sum, auto weight) { return (sum * scale) * weight; };
    store_unordered<Element, Order>(row.y + i, map(scaled, sum, weight), extent);
    if (!kept_sums) store_unordered<Residual, Order>(row.h + i, sum, extent);
  }
  template <class Extent>
  static TENSOR_OPS_INLINE void prefetch(const Row& row, std::size_t i, Extent extent,
                                         bool is_next) {
    prefetch_block(row.x + i, is_next ? row.x_to_next : kAhead, extent);
    prefetch_block(row.residual + i, is_next ? row.residual_to_next : kAhead, extent);
  }

  static TENSOR_OPS_RARE void wide_row(const Row& row) {
    // Small sums are multiplied after adding: their terms may be large and cancel.
    const auto sum = [&](std::size_t i, double factor) {
      const auto x = static_cast<double>(Element::load(row.x[i]));
      const auto residual = static_cast<double>(Residual::load(row.residual[i]));
      return factor > 1 ? (x + residual) * factor : x * factor + residual * factor;
    };
    const WideScale wide = wide_rms_scale<C>(row.n, row.eps, sum);
#pragma omp simd
    for (std::size_t i = 0; i < row.n; ++i) {
      const double weight = static_cast<double>(Parameter::load(row.weight[i]));
      const C y = static_cast<C>((sum(i, wide.factor) * wide.scale) * weight);
      const C h = static_cast<C>(sum(i, 1));
      row.y[i] = Element::store(y);
      row.h[i] = Residual::store(h);
    }
  }
};

template <class Element, class Parameter, class Residual>
using AddRmsNormKernel = RmsNormalisation<Element, AddRmsNorm<Element, Parameter, Residual>>;

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

EXPORT_KERNELS(add_rms_norm, nanoseconds(0.26, 0.23, 0.28, 0.52),
               each_dtype_parameters_and_rows<AddRmsNormKernel>())
