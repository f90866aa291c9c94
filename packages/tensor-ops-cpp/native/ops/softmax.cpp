// softmax: exp(scale * x - max) / sum, along rows.
#include "op.h"

#if KERNEL_PASS

#include "kernels/exp.h"
#include "kernels/rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

template <class C>
struct Extremes {
  C least, greatest;
};

// Where exp(hi) is 0 anyway lo may be anything, even infinite or NaN.
template <class C>
TENSOR_OPS_INLINE C exp_of(C hi, C lo) {
  return scaled_exp(hi, hi > 2 * ExpRange<C>::lowest ? lo : 0).value();
}

// exp(scale * (x[i] - peak)), peak being the x for which that is the largest, for scales of
// ordinary size: where the difference overflows its exponential is 0. The argument is kept as hi +
// lo, since its absolute error is the relative error of the result.
template <class Element>
struct Exponentials {
  using T = typename Element::Storage;
  using C = typename Element::Compute;
  const T* x;
  C peak;
  Pair<C> scale;

  Exponentials(const T* row, C peak_of_row, double factor)
      : x(row), peak(peak_of_row), scale{static_cast<C>(factor), 0} {
    scale.lo = static_cast<C>(factor - static_cast<double>(scale.hi));
  }

  TENSOR_OPS_INLINE C at(std::size_t i) const {
    const C value = Element::load(x[i]);
    if constexpr (sizeof(T) == 2) {
      // The half types have digits enough without the low part.
      return scaled_exp((value - peak) * scale.hi).value();
    } else {
      const Pair<C> difference = exact_sum(value, -peak);
      const Pair<C> product = exact_product(scale.hi, difference.hi);
      const C lo = fma(scale.hi, difference.lo, fma(scale.lo, difference.hi, product.lo));
      return exp_of(product.hi, lo);
    }
  }
};

// The same in double for any scale: the products are those of the formula, and overflow where it
// does.
template <class Element>
struct AnyScaleExponentials {
  const typename Element::Storage* x;
  double scale;
  Pair<double> peak;  // scale * peak

  AnyScaleExponentials(const typename Element::Storage* row, typename Element::Compute peak_of_row,
                       double factor)
      : x(row), scale(factor), peak(exact_product(factor, static_cast<double>(peak_of_row))) {}

  TENSOR_OPS_INLINE double at(std::size_t i) const {
    const Pair<double> product = exact_product(scale, static_cast<double>(Element::load(x[i])));
    const Pair<double> difference = exact_sum(product.hi, -peak.hi);
    const double lo = difference.lo + (product.lo - peak.lo);
    const bool matters = difference.hi > 2 * ExpRange<double>::lowest && lo == lo;
    const Pair<double> argument = exact_sum(difference.hi, matters ? lo : 0);
    return exp_of(argument.hi, argument.lo);
  }
};

template <class Element>
struct Softmax {
  using T = typename Element::Storage;
  using Compute = typename Element::Compute;

  // NaN in the row is passed over.
  static TENSOR_OPS_INLINE Extremes<Compute> extremes(const T* x, std::size_t n) {
    constexpr std::size_t lanes = Lanes<Compute>::count;
    Lanes<Compute> least, greatest;
    for (std::size_t l = 0; l < lanes; ++l) {
      least.lane[l] = static_cast<Compute>(__builtin_inf());
      greatest.lane[l] = -static_cast<Compute>(__builtin_inf());
    }
    std::size_t i = 0;
    const auto include = [&](std::size_t l) {
      const Compute value = Element::load(x[i + l]);
      least.lane[l] = value < least.lane[l] ? value : least.lane[l];
      greatest.lane[l] = value > greatest.lane[l] ? value : greatest.lane[l];
    };
    for (; i + lanes <= n; i += lanes) {
#pragma omp simd
      for (std::size_t l = 0; l < lanes; ++l) include(l);
    }
    for (std::size_t l = 0; l < n - i; ++l) include(l);
    Extremes<Compute> found{least.lane[0], greatest.lane[0]};
    for (std::size_t l = 1; l < lanes; ++l) {
      found.least = at_most(found.least, least.lane[l]);
      found.greatest = at_least(found.greatest, greatest.lane[l]);
    }
    return found;
  }

  static void fill_nan(T* y, std::size_t n) {
    const T nan = Element::store(static_cast<Compute>(__builtin_nan("")));
    for (std::size_t i = 0; i < n; ++i) y[i] = nan;
  }

  template <class Exponential>
  static TENSOR_OPS_INLINE void row_of_exponentials(Exponential exponentials, T* y, std::size_t n) {
    using C = decltype(exponentials.at(0));
    if constexpr (sizeof(T) == sizeof(C)) {
      const double total = sum<C>(n, [=](std::size_t i) { return y[i] = exponentials.at(i); });
      const C divisor = static_cast<C>(total);
#pragma omp simd
      for (std::size_t i = 0; i < n; ++i) y[i] = y[i] / divisor;
    } else {
      // The output cannot hold the exponentials without rounding them: they are computed twice.
      const double total = sum<C>(n, [=](std::size_t i) { return exponentials.at(i); });
      const C inverse = static_cast<C>(1 / total);
#pragma omp simd
      for (std::size_t i = 0; i < n; ++i)
        y[i] = Element::store(static_cast<Compute>(exponentials.at(i) * inverse));
    }
  }

  static bool is_ordinary(double scale) {
    const double size = __builtin_fabs(scale);
    return size > 0x1p-60 && size < 0x1p60;
  }

  static void row(const T* x, T* y, std::size_t n, double scale) {
    const Extremes<Compute> found = extremes(x, n);
    const Compute peak = scale >= 0 ? found.greatest : found.least;
    const double largest = scale * static_cast<double>(peak);
    if (!(__builtin_fabs(largest) < __builtin_inf())) return fill_nan(y, n);
    if (is_ordinary(scale))
      row_of_exponentials(Exponentials<Element>(x, peak, scale), y, n);
    else
      row_of_exponentials(AnyScaleExponentials<Element>(x, peak, scale), y, n);
  }

  static void run(const Run& run) {
    for (std::size_t r = 0; r < run.rows; ++r)
      row(row_of<const T>(run, 0, r), row_of<T>(run, 1, r), run.n, run.scalars[0]);
  }
};

}  // namespace

EXPORT_KERNELS(softmax, each_dtype<Softmax>())

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {

DECLARE_OP(softmax,
           {
               "softmax",
               Walk::kRows,
               Cost::kTranscendental,
               "Softmax of the scaled last axis, stable for any magnitude.",
               "y = exp(scale * x - max(scale * x)) / sum(exp(scale * x - max(scale * x)))",
               {rows("x", "Input."), scalar("scale", 1.0, "Multiplies x.")},
               {{"y", "The probabilities, which add up to 1 along each row."}},
               "J. S. Bridle, Probabilistic interpretation of feedforward classification "
               "network outputs, 1990.",
           })

}  // namespace tensor_ops

#endif
