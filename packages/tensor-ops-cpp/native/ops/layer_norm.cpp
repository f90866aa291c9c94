// layer_norm: (x - mean) / sqrt(var + eps) * weight + bias.
#include "op.h"

#if KERNEL_PASS

#include "kernels/rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

template <class Element>
struct LayerNorm {
  using T = typename Element::Storage;
  using Compute = typename Element::Compute;

  template <class C>
  static TENSOR_OPS_INLINE C load(const T* x, std::size_t i) {
    return static_cast<C>(Element::load(x[i]));
  }

  // The mean as centre + rest: deviations from the centre lose nothing when |mean| >> std. The
  // first sum is in double; where that is no wider than the values, the deviations' own mean is the
  // rest.
  template <class C>
  struct Moments {
    C centre, rest;
    double variance;
  };

  template <class C>
  static TENSOR_OPS_INLINE Moments<C> moments(const T* x, std::size_t n) {
    const double count = static_cast<double>(n);
    const double mean = sum<double>(n, [=](std::size_t i) { return load<double>(x, i); }) / count;
    const C centre = static_cast<C>(mean);
    double rest = mean - static_cast<double>(centre);
    if constexpr (sizeof(C) == sizeof(double))
      rest = sum<C>(n, [=](std::size_t i) { return load<C>(x, i) - centre; }) / count;
    const double squares = sum<C>(n, [=](std::size_t i) {
      const C deviation = load<C>(x, i) - centre;
      return deviation * deviation;
    });
    return {centre, static_cast<C>(rest), variance(squares / count, rest)};
  }

  // From the mean of squared deviations from the centre. That being infinite the variance is too,
  // whatever the rest.
  static TENSOR_OPS_INLINE double variance(double mean_square, double rest) {
    return is_finite(mean_square) ? at_least(mean_square - rest * rest, 0.0) : mean_square;
  }

  // Returns false, having written nothing, when the row needs a wider type than C.
  template <class C>
  static TENSOR_OPS_INLINE bool row_in(const T* x, const T* weight, const T* bias, T* y,
                                       std::size_t n, double eps) {
    const Moments<C> m = moments<C>(x, n);
    if (!is_safe_in(C(), m.variance + eps)) return false;
    const C scale = static_cast<C>(1 / __builtin_sqrt(m.variance + eps));
    const auto scaled = [=](std::size_t i) {
      return (((load<C>(x, i) - m.centre) - m.rest) * scale) * load<C>(weight, i);
    };
    const auto write = [=](std::size_t i, C value) {
      y[i] = Element::store(static_cast<Compute>(value));
    };
    if (bias) {
#pragma omp simd
      for (std::size_t i = 0; i < n; ++i) write(i, scaled(i) + load<C>(bias, i));
    } else {
#pragma omp simd
      for (std::size_t i = 0; i < n; ++i) write(i, scaled(i));
    }
    return true;
  }

  static void run(const Run& run) {
    for (std::size_t r = 0; r < run.rows; ++r) {
      const T *x = row_of<const T>(run, 0, r), *weight = row_of<const T>(run, 1, r);
      const T* bias = optional_row_of<const T>(run, 2, r);
      T* y = row_of<T>(run, 3, r);
      if (!row_in<Compute>(x, weight, bias, y, run.n, run.scalars[0]))
        row_in<double>(x, weight, bias, y, run.n, run.scalars[0]);
    }
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
