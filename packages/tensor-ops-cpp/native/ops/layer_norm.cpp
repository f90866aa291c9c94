// layer_norm: (x - mean) / sqrt(var + eps) * weight + bias.
#include "op.h"

#if KERNEL_PASS

#include "kernels/rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// The mean as centre + rest: deviations from the centre lose nothing when |mean| >> std.
template <class C>
struct Moments {
  C centre, rest;
  double variance;
};

// From the sums of the deviations from the centre and of their squares. These being infinite the
// variance is too, whatever the rest.
template <class C>
TENSOR_OPS_INLINE Moments<C> moments_about(C centre, double deviations, double squares,
                                           double count) {
  const double rest = deviations / count, mean_square = squares / count;
  const double variance =
      is_finite(mean_square) ? at_least(mean_square - rest * rest, 0.0) : mean_square;
  return {centre, static_cast<C>(rest), variance};
}

template <class Element>
struct LayerNorm {
  using T = typename Element::Storage;
  using C = typename Element::Compute;
  using V = Vector<C>;

  struct Row {
    const T *x, *weight, *bias;
    T* y;
    std::size_t n;
    double eps;
    bool streams;
    std::ptrdiff_t ahead;  // bytes from x to what is read next
  };

  static TENSOR_OPS_INLINE Moments<C> moments(const T* x, std::size_t n) {
    const auto count = static_cast<double>(n);
    const C centre = static_cast<C>(
        sum<C>(n,
               [=](std::size_t i, auto extent) { return load_unordered<Element>(x + i, extent); }) /
        count);
    double deviations = 0, squares = 0;
    for (std::size_t begin = 0; begin < n; begin += kChunk) {
      const std::size_t end = n - begin < kChunk ? n : begin + kChunk;
      Lanes<V> of_deviations, of_squares;
      for_blocks<C>(begin, end, [&](std::size_t i, auto extent) {
        const auto block = deviations_from(centre, x + i, extent);
        for (std::size_t u = 0; u < extent.vectors; ++u) {
          of_deviations.vector[u] += block.vector[u];
          of_squares.vector[u] = fma(block.vector[u], block.vector[u], of_squares.vector[u]);
        }
      });
      deviations += of_deviations.total();
      squares += of_squares.total();
    }
    return moments_about(centre, deviations, squares, count);
  }

  // Zeros after a part's elements.
  template <class Extent>
  static TENSOR_OPS_INLINE auto deviations_from(C centre, const T* x, Extent extent) {
    const auto block =
        map([centre](V value) { return value - centre; }, load_unordered<Element>(x, extent));
    return only(extent, block);
  }

  static TENSOR_OPS_INLINE void row(const Row& row) {
    const Moments<C> m = moments(row.x, row.n);
    if (!is_safe_in(C(), m.variance + row.eps)) return wide_row(row);
    const C scale = static_cast<C>(1 / __builtin_sqrt(m.variance + row.eps));
    const auto scaled = [=](V x, V weight) { return (((x - m.centre) - m.rest) * scale) * weight; };
    if (row.bias)
      write(row, [scaled](V x, V weight, V bias) { return scaled(x, weight) + bias; }, row.bias);
    else
      write(row, scaled);
  }

  template <class Function, class... Bias>
  static TENSOR_OPS_INLINE void write(const Row& row, Function function, Bias... bias) {
    write_unordered_row<Element>(row.streams, row.n, row.y, [&](std::size_t i, auto extent) {
      prefetch_if_streamed(row.x + i, row.ahead, extent);
      return map(function, load_unordered<Element>(row.x + i, extent),
                 load_unordered<Element>(row.weight + i, extent),
                 load_unordered<Element>(bias + i, extent)...);
    });
  }

  // In double, for a row that needs it.
  static __attribute__((noinline)) void wide_row(const Row& row) {
    const auto x = [&](std::size_t i) { return static_cast<double>(Element::load(row.x[i])); };
    const auto count = static_cast<double>(row.n);
    const double centre = wide_sum(row.n, x) / count;
    const auto deviation = [&](std::size_t i) { return x(i) - centre; };
    const Moments<double> m = moments_about(
        centre, wide_sum(row.n, deviation),
        wide_sum(row.n, [&](std::size_t i) { return deviation(i) * deviation(i); }), count);
    const double scale = 1 / __builtin_sqrt(m.variance + row.eps);
#pragma omp simd
    for (std::size_t i = 0; i < row.n; ++i) {
      const double weight = static_cast<double>(Element::load(row.weight[i]));
      const double bias = row.bias ? static_cast<double>(Element::load(row.bias[i])) : 0;
      const double scaled = ((deviation(i) - m.rest) * scale) * weight;
      row.y[i] = Element::store(static_cast<C>(row.bias ? scaled + bias : scaled));
    }
  }

  static void run(const Run& run) {
    for (std::size_t r = 0; r < run.rows; ++r)
      row({row_of<const T>(run, 0, r), row_of<const T>(run, 1, r),
           optional_row_of<const T>(run, 2, r), row_of<T>(run, 3, r), run.n, run.scalars[0],
           run.streams, pipeline_distance(run, 0, r, sizeof(T))});
    if (run.streams) finish_streams();
  }
};

}  // namespace

EXPORT_KERNELS(layer_norm, each_dtype<LayerNorm>())

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {

DECLARE_OP(layer_norm,
           {
               "layer_norm",
               Walk::kRows,
               Cost::kArithmetic,
               "Normalisation of the last axis to mean 0 and variance 1, scaled and shifted.",
               "y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias",
               {rows("x", "Input."), row("weight", "Scale of each element of a row."),
                optional_row("bias", "Added to each row."),
                non_negative("eps", 1e-5, "Added to the variance.")},
               {{"y", "The normalised rows."}},
               "J. L. Ba, J. R. Kiros and G. E. Hinton, Layer normalization, arXiv:1607.06450.",
           })

}  // namespace tensor_ops

#endif
