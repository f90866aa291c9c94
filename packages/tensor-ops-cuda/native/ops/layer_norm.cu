#include "kernels/arithmetic.cuh"
#include "kernels/row_driver.cuh"
#include "op.h"

namespace tensor_ops {
namespace {

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

// How the elements of a row are scaled if its moments are not exact: a row of float is computed in
// double as it is, a row of double near 1 if its variance, or that of several such rows together,
// has lost digits. NaN may come from an overflow. The mean is tested too, since rows of equal large
// elements have no variance.
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

  template <class A, class Team, class Scaling>
  DEVICE void write_all(const Team& team, const Moments<A>& moments, A scale,
                        Scaling scaled) const {
    this->each(team, [&](int first, const Vector& in) {
      write_deviations(first, in, moments, scale, scaled);
    });
  }

  // The mean is compensated once by the mean of the deviations from it, so that a row of equal
  // elements has no deviations at all.
  template <class Team, class Scaling>
  DEVICE Moments<double> exact_moments(Team& team, Scaling scaled) const {
    const auto mean_of = [&](auto function) {
      const auto of_element = [&](R x) { return function(scaled(static_cast<double>(x))); };
      return this->combine(team, 0.0, of_element, Plus()) / this->n;
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
template <class Row, class Team, class Scaling>
__device__ __noinline__ void careful_layer_norm_row(Team& team, const Row& row, double eps,
                                                    Scaling scaled, bool is_own) {
  const Moments<double> moments = row.exact_moments(team, scaled);
  const double scale = 1 / sqrt(moments.variance + scaled_eps(eps, scaled));
  if (is_own) row.write_all(team, moments, scale, scaled);
}

// A row of at most kVectors vectors of each lane.
template <int kVectors, class Team, class X, class Weight>
DEVICE void layer_norm_row(Team& team, const LayerRow<X, Weight>& row, double eps) {
  using R = Real<X>;
  constexpr int kCount = kWidth<X>;
  RowShare<X, kVectors> share;
  share.load(team, row, row.x);
  R sum = 0;
  share.each([&](int j, int i) { sum += share.at(j, i); });
  const R count = static_cast<R>(row.n), mean = team.combine(sum, Plus()) / count;
  share.forget_conversions();

  R deviations = 0, squares = 0;
  share.each([&](int j, int i) {
    if (first_element<kCount>(team, j) + i >= row.n) return;
    const R deviation = share.at(j, i) - mean;
    deviations += deviation;
    squares = fused(deviation, deviation, squares);
  });
  const R rest = team.combine(deviations, Plus()) / count;
  const R square = team.combine(squares, Plus()) / count;
  share.forget_conversions();

  // Where the mean is far from exact, the deviations have lost digits to its error.
  const R variance = square - rest * rest, with_eps = variance + static_cast<R>(eps);
  const bool is_exact = has_digits(variance, with_eps) && rest * rest <= variance;
  if (is_exact) {
    const R scale = 1 / sqrt(with_eps);
#pragma unroll
    for (int j = 0; j < kVectors; ++j)
      row.write_deviations(first_element<kCount>(team, j), share.vector[j],
                           Moments<R>{mean, rest, variance}, scale, Unscaled());
  }
  const bool is_inexact = row.n > 0 && !is_exact;
  if (any_of_warp(is_inexact))
    careful_layer_norm_row(team, row, eps, scaling_for(mean, with_eps), is_inexact);
}

template <class X, class Weight>
struct LayerNorm : RowCall<4> {
  using Element = X;
  using R = Real<X>;
  using Row = LayerRow<X, Weight>;
  using Measured = LayerNorm<X, X>;
  static constexpr int kMostVectors = kManyVectors, kSteps = 2;

  double eps;

  LayerNorm(const Call& call, bool whole_) : RowCall<4>(call, whole_), eps(call.scalar[0]) {}

  DEVICE Row at(std::int64_t index, std::int64_t first, int n) const {
    const RowAddresses<4> address(*this, index, first);
    const Weight* bias = this->array[2] ? address.in<Weight>(2) : nullptr;
    return {{address.in<X>(0), address.in<X>(3), n, this->whole}, address.in<Weight>(1), bias};
  }

  template <int kVectors, class Team>
  DEVICE void row(Team& team, const Row& row) const {
    layer_norm_row<kVectors>(team, row, eps);
  }

  // A part stores the mean of its elements, the sum of their squared deviations from it, and the
  // factor that they were multiplied by: 1 if the moments are safe, and for float, whose parts are
  // added in double.
  template <int kStep>
  DEVICE void part(Team<false>& team, const Row& row, const PartsOfRow& parts) const {
    constexpr bool is_double = sizeof(R) == 8;
    if constexpr (kStep == 0) {
      Scaled scaled{1};
      Moments<double> moments = row.exact_moments(team, Unscaled());
      if constexpr (is_double) scaled = scaling_for(moments.mean, moments.variance + eps);
      if (scaled.factor != 1) moments = row.exact_moments(team, scaled);
      parts.store(team, moments.mean + moments.rest, moments.variance * row.n, scaled.factor);
    } else {
      // All parts take the least of their factors.
      const auto factor_of = [&](std::int64_t part) { return parts.number(2, part); };
      const Scaled scaled{parts.combine(team, kGrow, factor_of, Lesser())};
      const auto scaling_of = [&](std::int64_t part) {
        if constexpr (is_double)
          return Scaled{scaled.factor / factor_of(part)};
        else
          return Unscaled();
      };
      const Moments<double> exact = moments_of_parts(team, parts, scaling_of);
      const double with_eps = exact.variance + (is_double ? scaled_eps(eps, scaled) : eps);
      const double scale = 1 / sqrt(with_eps);
      if constexpr (is_double) {
        row.write_all(team, exact, scale, scaled);
      } else if (has_digits(static_cast<R>(exact.variance), static_cast<R>(with_eps))) {
        const R rough = static_cast<R>(exact.mean);
        const Moments<R> moments{rough, static_cast<R>(exact.mean - static_cast<double>(rough)), 0};
        row.write_all(team, moments, static_cast<R>(scale), Unscaled());
      } else {
        row.write_all(team, exact, scale, Unscaled());
      }
    }
  }

 private:
  // The mean and the variance of a row, from the moments of its parts, each scaled by
  // scaling_of(part).
  template <class ScalingOf>
  DEVICE static Moments<double> moments_of_parts(Team<false>& team, const PartsOfRow& parts,
                                                 ScalingOf scaling_of) {
    const double count = static_cast<double>(parts.n);
    const auto mean_of = [&](std::int64_t part) { return scaling_of(part)(parts.number(0, part)); };
    // Around the first part's mean, so that rows of equal elements have exactly that mean.
    const double centre = mean_of(0);
    const double mean = centre + parts.sum(team, [&](std::int64_t part) {
      return (mean_of(part) - centre) * parts.size(part);
    }) / count;
    const double squares = parts.sum(team, [&](std::int64_t part) {
      const auto scaled = scaling_of(part);
      const double deviation = mean_of(part) - mean;
      return scaled(scaled(parts.number(1, part))) + deviation * deviation * parts.size(part);
    });
    return {mean, 0, squares / count};
  }
};

// Of x, weight, bias and y.
void launch_layer_norm(const Call& call) {
  with_element(call.dtype, [&](auto x) {
    using X = decltype(x);
    with_wide_element<X>(call.array_dtype[1],
                         [&](auto weight) { launch_rows<LayerNorm<X, decltype(weight)>>(call); });
  });
}

}  // namespace

DECLARE_OP(layer_norm, launch_layer_norm,
           {
               "layer_norm",
               Walk::kRows,
               "Normalisation of the last axis to mean 0 and variance 1, scaled and shifted.",
               "y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias",
               {rows("x", "Input."), row("weight", "Scale of each element of a row."),
                optional_row("bias", "Added to each row."),
                non_negative("eps", 1e-5, "Added to the variance.")},
               {{"y", "The normalised rows."}},
               "J. L. Ba, J. R. Kiros and G. E. Hinton, Layer normalization, arXiv:1607.06450.",
           })

}  // namespace tensor_ops
