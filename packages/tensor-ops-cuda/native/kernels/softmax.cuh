// Rows of exponentials that add up to 1.
#pragma once

#include <cmath>

#include "kernels/exp.cuh"
#include "kernels/row.cuh"
#include "kernels/thread_group.cuh"

namespace tensor_ops {

// The scale in the two forms that the formulas need. For scales of an ordinary magnitude, factor_hi
// + factor_lo is the scale times log2(e). For all scales, part * rescaled is the scale: part is 1/4
// for scales below 1, since the difference of two numbers may overflow where its product with the
// scale does not.
template <class R>
struct SoftmaxScale {
  R factor_hi, factor_lo;
  double part, rescaled;
  bool is_ordinary;

  // 1, or -1 where the smallest x has the largest exponential.
  DEVICE R sign() const { return rescaled < 0 ? R{-1} : R{1}; }
};

// Products of larger magnitude have too few digits after the binary point.
template <class R>
constexpr R kMostOrdinary = sizeof(R) == 8 ? R(0x1p40) : R(0x1p16);

// Between these, products of a scale have digits to spare.
constexpr double kLeastScale = 0x1p-60, kMostScale = 0x1p60;

template <class R>
SoftmaxScale<R> softmax_scale(double scale) {
  using C = ExpConstants<double>;
  SoftmaxScale<R> result{};
  result.is_ordinary = scale > kLeastScale && scale < kMostScale;
  if (result.is_ordinary) {
    const double hi = scale * C::kLog2EHi;
    const double lo = std::fma(scale, C::kLog2EHi, -hi) + scale * C::kLog2ELo;
    result.factor_hi = static_cast<R>(hi);
    result.factor_lo = static_cast<R>((hi - static_cast<double>(result.factor_hi)) + lo);
  }
  result.part = std::fabs(scale) < 1 ? 0.25 : 1;
  result.rescaled = scale / result.part;
  return result;
}

template <class X>
struct SoftmaxRow : Row<X> {
  using typename Row<X>::Element;
  using typename Row<X>::R;
  using typename Row<X>::Vector;

  SoftmaxScale<R> scale;

  // `peak` is the x with the largest exponential, up to the scale's sign.
  DEVICE bool is_ordinary(R peak) const {
    return scale.is_ordinary && magnitude(scale.factor_hi * peak) < kMostOrdinary<R>;
  }

  // exp(scale * x) / 2^k for k = peak_exponent(). The product scale * x is not rounded before the
  // nearest integer, or for a half type k, has been subtracted from it.
  DEVICE R peak_exponent(R peak) const {
    return fused(peak, scale.factor_hi, Format<R>::kShift) - Format<R>::kShift;
  }
  DEVICE R exponential(R value, R exponent) const {
    if constexpr (is_half<Element>) {
      return fast_exp2(fused(value, scale.factor_hi, -exponent));
    } else {
      const R k = fused(value, scale.factor_hi, Format<R>::kShift) - Format<R>::kShift;
      const R rest = fused(value, scale.factor_hi, -k);
      const R r = fused(value, scale.factor_lo, rest), power = k - exponent;
      // Subnormal results are 0.
      return power < 1 - Format<R>::kBias ? R{0} : ordinary_exp2(power + Format<R>::kShift, r);
    }
  }

  // exp(scale * (x - peak)) for any numbers. The rounding errors of the difference and of the
  // product are compensated.
  DEVICE double careful_exponential(double value, double peak) const {
    const double a = value * scale.part, b = -peak * scale.part;
    const double difference = a + b, lost = sum_error(a, b, difference);
    const double product = difference * scale.rescaled;
    const double rest =
        fused(lost, scale.rescaled, product_error(difference, scale.rescaled, product));
    if (!(product >= ExpConstants<double>::kLowest)) return product < 0 ? 0 : product;
    return scaled_exp(at_most(product, 0.0), is_finite(rest) ? rest : 0).value();
  }

  template <class Group, class Function>
  DEVICE void write_all(const Group& group, Function function) const {
    this->each(group, [&](int first, const Vector& in) {
      this->write(first, [&](int i) { return function(real(in.element[i])); });
    });
  }

  // The x that has the largest exponential; NaN is ignored.
  template <class Group>
  DEVICE R find_peak(Group& group) const {
    const R sign = scale.sign();
    const auto signed_x = [=](R x) { return x * sign; };
    return sign * this->combine(group, -static_cast<R>(INFINITY), signed_x, Greater());
  }

  template <class Group>
  DEVICE double careful_sum(Group& group, double peak) const {
    const auto exponential = [&](R x) { return careful_exponential(x, peak); };
    return this->combine(group, 0.0, exponential, Plus());
  }

  template <class Group>
  DEVICE void write_carefully(const Group& group, double peak, double total) const {
    const double factor = is_finite(peak) ? 1 / total : NAN;
    write_all(group, [&](R x) { return static_cast<R>(careful_exponential(x, peak) * factor); });
  }
};

// Rarely called: inlined, it would take registers from its callers.
template <class X, class Group>
__device__ __noinline__ void careful_softmax_row(Group& group, const SoftmaxRow<X>& row,
                                                 bool is_own) {
  const double peak = row.find_peak(group);
  const double total = row.careful_sum(group, peak);
  if (is_own) row.write_carefully(group, peak, total);
}

// A row of at most kVectors vectors of each lane.
template <int kVectors, class Group, class X>
DEVICE void softmax_row(Group& group, const SoftmaxRow<X>& row) {
  using R = Real<X>;
  constexpr R kLowest = -static_cast<R>(INFINITY);
  RowShare<X, kVectors> share;
  share.load(group, row, row.x, rounded_to<X>(kLowest));
  R peak = kLowest;
  share.each([&](int j, int i) { peak = Greater()(peak, share.at(j, i)); });
  peak = group.combine(peak, Greater());
  share.forget_conversions();

  const bool is_ordinary = row.is_ordinary(peak);
  const R exponent = row.peak_exponent(peak);
  R sum = 0;
  share.each([&](int j, int i) {
    const R value = row.exponential(share.at(j, i), exponent);
    sum += value;
    // A half type cannot hold the exponentials: they are computed once more.
    if constexpr (!is_half<X>) share.vector[j].element[i] = value;
  });
  const R factor = 1 / group.combine(sum, Plus());
  share.forget_conversions();

  if (is_ordinary) {
#pragma unroll
    for (int j = 0; j < kVectors; ++j)
      row.write(first_element<kWidth<X>>(group, j), [&](int i) {
        const R value = share.at(j, i);
        return (is_half<X> ? row.exponential(value, exponent) : value) * factor;
      });
  }
  const bool needs_care = row.n > 0 && !is_ordinary;
  if (any_of_warp(needs_care)) careful_softmax_row(group, row, needs_care);
}

}  // namespace tensor_ops
