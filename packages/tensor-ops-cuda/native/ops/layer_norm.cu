#include "declaration/ops/layer_norm.h"
#include "kernels/layer_norm.cuh"
#include "kernels/row_driver.cuh"
#include "op.h"

namespace tensor_ops {
namespace {

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

  template <int kVectors, class Group>
  DEVICE void row(Group& group, const Row& row) const {
    layer_norm_row<kVectors>(group, row, eps);
  }

  // A part stores the mean of its elements, the sum of their squared deviations from it, and the
  // factor that they were multiplied by: 1 if the moments are safe, and for float, whose parts are
  // added in double.
  template <int kStep>
  DEVICE void part(BlockGroup& group, const Row& row, const PartsOfRow& parts) const {
    constexpr bool is_double = sizeof(R) == 8;
    if constexpr (kStep == 0) {
      Scaled scaled{1};
      Moments<double> moments = row.exact_moments(group, Unscaled());
      if constexpr (is_double) scaled = scaling_for(moments.mean, moments.variance + eps);
      if (scaled.factor != 1) moments = row.exact_moments(group, scaled);
      parts.store(group, moments.mean + moments.rest, moments.variance * row.n, scaled.factor);
    } else {
      // All parts take the least of their factors.
      const auto factor_of = [&](std::int64_t part) { return parts.number(2, part); };
      const Scaled scaled{parts.combine(group, kGrow, factor_of, Lesser())};
      const auto scaling_of = [&](std::int64_t part) {
        if constexpr (is_double)
          return Scaled{scaled.factor / factor_of(part)};
        else
          return Unscaled();
      };
      const Moments<double> exact = moments_of_parts(group, parts, scaling_of);
      const double with_eps = exact.variance + (is_double ? scaled_eps(eps, scaled) : eps);
      const double scale = 1 / sqrt(with_eps);
      if constexpr (is_double) {
        row.write_all(group, exact, scale, scaled);
      } else if (has_digits(static_cast<R>(exact.variance), static_cast<R>(with_eps))) {
        const R rough = static_cast<R>(exact.mean);
        const Moments<R> moments{rough, static_cast<R>(exact.mean - static_cast<double>(rough)), 0};
        row.write_all(group, moments, static_cast<R>(scale), Unscaled());
      } else {
        row.write_all(group, exact, scale, Unscaled());
      }
    }
  }

 private:
  // The mean and the variance of a row, from the moments of its parts, each scaled by
  // scaling_of(part).
  template <class ScalingOf>
  DEVICE static Moments<double> moments_of_parts(BlockGroup& group, const PartsOfRow& parts,
                                                 ScalingOf scaling_of) {
    const double count = static_cast<double>(parts.n);
    const auto mean_of = [&](std::int64_t part) { return scaling_of(part)(parts.number(0, part)); };
    // Around the first part's mean, so that rows of equal elements have exactly that mean.
    const double centre = mean_of(0);
    const double mean = centre + parts.sum(group, [&](std::int64_t part) {
      return (mean_of(part) - centre) * parts.size(part);
    }) / count;
    const double squares = parts.sum(group, [&](std::int64_t part) {
      const auto scaled = scaling_of(part);
      const double deviation = mean_of(part) - mean;
      return scaled(scaled(parts.number(1, part))) + deviation * deviation * parts.size(part);
    });
    return {mean, 0, squares / count};
  }
};

// The arrays are x, weight, bias and y.
void launch_layer_norm(const Call& call) {
  with_element(call.dtype, [&](auto x) {
    using X = decltype(x);
    with_wide_element<X>(call.array_dtype[1],
                         [&](auto weight) { launch_rows<LayerNorm<X, decltype(weight)>>(call); });
  });
}

}  // namespace
}  // namespace tensor_ops

DECLARE_OP(layer_norm, launch_layer_norm)
