// Rows normalised to mean 0 and variance 1.
#pragma once

#include "kernels/arithmetic.cuh"
#include "kernels/row.cuh"
#include "kernels/thread_group.cuh"

namespace tensor_ops {

// A mean as mean + rest, and the variance.
template <class A>
struct Moments {
  A mean, rest, variance;
};

// Deviations have lost digits where they are subnormal. Above this variance, with eps, results are
// subnormal there too, so that it does not show.
template <class R>
constexpr R kLeastSafe = sizeof(R) == 4 ? R(1e-14) : R(1e-30);

template <class R>
DEVICE bool has_digits(R variance, R with_eps) {
  return is_safe(with_eps) && (with_eps > kLeastSafe<R> || is_safe(variance));
}

// The scaling of a row whose moments are not exact: a row of float is computed in double as it is,
// a row of double near 1 if its variance, or that of several such rows together, has lost digits.
// NaN may come from an overflow. The mean is tested too, since rows of equal large elements have no
// variance.
DEVICE Unscaled scaling_for(float, float) { return {}; }
DEVICE Scaled scaling_for(double mean, double with_eps) {
  if (!(with_eps <= 1e290 && magnitude(mean) <= 1e140)) return {kShrink};
  if (magnitude(mean) > 1e-100 || with_eps > kLeastSafe<double>) return {1};
  // eps must not overflow. Beside one that is safe the squares may vanish.
  return {is_safe(with_eps) ? 0x1p400 : kGrow};
}

// eps as the variance of scaled elements needs it. It stays positive, so that the result of a row
// of equal elements is 0 and not NaN.
template <class Scaling>
DEVICE double scaled_eps(double eps, Scaling scaled) {
  return eps > 0 ? at_least(scaled(scaled(eps)), 0x1p-1022) : 0;
}

// The weight and the bias may have other elements than x: float32.
template <class X, class Weight>
struct LayerRow : Row<X> {
  using typename Row<X>::R;
  using typename Row<X>::Vector;
  using Row<X>::kCount;

  const Weight *weight, *bias;  // the bias may be null

  // y = ((x - mean) - rest) * scale * weight + bias, computed in A.
  template <class A, class Scaling>
  DEVICE void write_deviations(int first, const Vector& in, const Moments<A>& moments, A scale,
                               Scaling scaled) const {
    const auto w = this->load(weight, first);
    Packed<Weight, kCount> b{};
    if (bias) b = this->load(bias, first);
    this->write(first, [&](int i) {
      const A x = scaled(static_cast<A>(real(in.element[i])));
      A value = (((x - moments.mean) - moments.rest) * scale) * static_cast<A>(real(w.element[i]));
      if (bias) value += static_cast<A>(real(b.element[i]));
      return static_cast<R>(value);
    });
  }

  template <class A, class Group, class Scaling>
  DEVICE void write_all(const Group& group, const Moments<A>& moments, A scale,
                        Scaling scaled) const {
    this->each(group, [&](int first, const Vector& in) {
      write_deviations(first, in, moments, scale, scaled);
    });
  }

  // The mean is compensated once by the mean of the deviations from it, so that a row of equal
  // elements has no deviations at all.
  template <class Group, class Scaling>
  DEVICE Moments<double> exact_moments(Group& group, Scaling scaled) const {
    const auto mean_of = [&](auto function) {
      const auto of_element = [&](R x) { return function(scaled(static_cast<double>(x))); };
      return this->combine(group, 0.0, of_element, Plus()) / this->n;
    };
    const double mean = mean_of([](double x) { return x; });
    const double rest = mean_of([=](double x) { return x - mean; });
    const double variance = mean_of([=](double x) {
      const double deviation = (x - mean) - rest;
      return deviation * deviation;
    });
    return {mean, rest, variance};
  }
};

// Rarely called: inlined, it would take registers from its callers.
template <class Row, class Group, class Scaling>
__device__ __noinline__ void careful_layer_norm_row(Group& group, const Row& row, double eps,
                                                    Scaling scaled, bool is_own) {
  const Moments<double> moments = row.exact_moments(group, scaled);
  const double scale = 1 / sqrt(moments.variance + scaled_eps(eps, scaled));
  if (is_own) row.write_all(group, moments, scale, scaled);
}

// A row of at most kVectors vectors of each lane.
template <int kVectors, class Group, class X, class Weight>
DEVICE void layer_norm_row(Group& group, const LayerRow<X, Weight>& row, double eps) {
  using R = Real<X>;
  constexpr int kCount = kWidth<X>;
  RowShare<X, kVectors> share;
  share.load(group, row, row.x);
  R sum = 0;
  share.each([&](int j, int i) { sum += share.at(j, i); });
  const R count = static_cast<R>(row.n), mean = group.combine(sum, Plus()) / count;
  share.forget_conversions();

  R deviations = 0, squares = 0;
  share.each([&](int j, int i) {
    if (first_element<kCount>(group, j) + i >= row.n) return;
    const R deviation = share.at(j, i) - mean;
    deviations += deviation;
    squares = fused(deviation, deviation, squares);
  });
  const R rest = group.combine(deviations, Plus()) / count;
  const R square = group.combine(squares, Plus()) / count;
  share.forget_conversions();

  // The deviations have lost digits to the mean's error where it is far from exact.
  const R variance = square - rest * rest, with_eps = variance + static_cast<R>(eps);
  const bool is_exact = has_digits(variance, with_eps) && rest * rest <= variance;
  if (is_exact) {
    const R scale = 1 / sqrt(with_eps);
#pragma unroll
    for (int j = 0; j < kVectors; ++j)
      row.write_deviations(first_element<kCount>(group, j), share.vector[j],
                           Moments<R>{mean, rest, variance}, scale, Unscaled());
  }
  const bool is_inexact = row.n > 0 && !is_exact;
  if (any_of_warp(is_inexact))
    careful_layer_norm_row(group, row, eps, scaling_for(mean, with_eps), is_inexact);
}

}  // namespace tensor_ops
