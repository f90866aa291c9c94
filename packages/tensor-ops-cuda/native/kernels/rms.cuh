// Rows scaled to a root mean square of one: of an array, or of the sum of two that is kept as well.
#pragma once

#include <type_traits>

#include "kernels/arithmetic.cuh"
#include "kernels/row.cuh"
#include "kernels/thread_group.cuh"

namespace tensor_ops {

struct NoResidual {};

// x is added to a residual if there is one, and h is the sum. The residual, h and the weight may
// have other elements than x: float32.
template <class X, class Weight, class Residual>
struct RmsRow : Row<X> {
  using typename Row<X>::R;
  using Row<X>::kCount;
  static constexpr bool kHasResidual = !std::is_same_v<Residual, NoResidual>;
  struct Vectors {
    Packed<X, kCount> x;
    Packed<Residual, kCount> residual;  // set where there is one
  };

  const Weight* weight;
  const Residual* residual;
  Residual* h;

  // The sum times a factor. A large factor comes after the sum, whose terms may be large and
  // cancel, and a small one before it, since the sum may overflow.
  template <class A, class Scaling = Unscaled>
  DEVICE static A sum_at(const Vectors& in, int i, Scaling scaled = {}) {
    const A x = real(in.x.element[i]);
    if constexpr (kHasResidual) {
      const A added = real(in.residual.element[i]);
      return scaled.factor > 1 ? scaled(x + added) : scaled(x) + scaled(added);
    } else {
      return scaled(x);
    }
  }

  template <class A, class Scaling = Unscaled>
  DEVICE static A plus_squares(A sum, const Vectors& in, Scaling scaled = {}) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const A value = sum_at<A>(in, i, scaled);
      sum = fused(value, value, sum);
    }
    return sum;
  }

  // Given the scale of the row times a factor. The finite elements of a large row are not shrunk
  // before they are scaled, since small ones would lose digits; for a small row, the factor times
  // the scale may be infinite.
  template <class A, class Scaling = Unscaled>
  DEVICE void write_sums(int first, const Vectors& in, A scale, Scaling scaled = {}) const {
    const auto w = this->load(weight, first);
    this->write(first, [&](int i) {
      const A sum = sum_at<A>(in, i);
      const A normalised = scaled.factor < 1 && is_finite(sum)
                               ? sum * (scale * static_cast<A>(scaled.factor))
                               : sum_at<A>(in, i, scaled) * scale;
      return static_cast<R>(normalised * static_cast<A>(real(w.element[i])));
    });
    if constexpr (kHasResidual) {
      Packed<Residual, kCount> sum;
#pragma unroll
      for (int i = 0; i < kCount; ++i) sum.element[i] = rounded_to<Residual>(sum_at<R>(in, i));
      store_part(sum, h, first, this->n, this->whole);
    }
  }

  template <class Group, class Visit>
  DEVICE void each_sum(const Group& group, Visit visit) const {
    this->each(group, [&](int first, const Packed<X, kCount>& x) {
      Vectors in;
      in.x = x;
      if constexpr (kHasResidual) in.residual = this->load(residual, first);
      visit(first, in);
    });
  }

  template <class Group, class Scaling>
  DEVICE double squares(Group& group, Scaling scaled) const {
    double sum = 0;
    each_sum(group, [&](int, const Vectors& in) { sum = plus_squares(sum, in, scaled); });
    return group.combine(sum, Plus());
  }

  template <class A, class Group, class Scaling>
  DEVICE void write_all(const Group& group, A scale, Scaling scaled) const {
    each_sum(group, [&](int first, const Vectors& in) { write_sums(first, in, scale, scaled); });
  }
};

// The scaling of a row whose mean of squares is not safe: a row of float is computed in double as
// it is, a row of double near 1.
DEVICE Unscaled scaling_for(float) { return {}; }
DEVICE Scaled scaling_for(double mean_square) { return {mean_square < 1 ? kGrow : kShrink}; }

// Rarely called: inlined, it would take registers from its callers.
template <class Row, class Group, class Scaling>
__device__ __noinline__ void careful_rms_row(Group& group, const Row& row, double eps,
                                             Scaling scaled, bool is_own) {
  const double mean = row.squares(group, scaled) / row.n + scaled(scaled(eps));
  if (is_own) row.write_all(group, 1 / sqrt(mean), scaled);
}

// A row of at most kVectors vectors of each lane.
template <int kVectors, class Group, class X, class Weight, class Residual>
DEVICE void rms_row(Group& group, const RmsRow<X, Weight, Residual>& row, double eps) {
  using Row = RmsRow<X, Weight, Residual>;
  using R = typename Row::R;
  RowShare<X, kVectors> x;
  RowShare<Residual, kVectors, Row::kCount> residual;
  x.load(group, row, row.x);
  if constexpr (Row::kHasResidual) residual.load(group, row, row.residual);
  const auto vectors = [&](int j) {
    typename Row::Vectors in;
    in.x = x.vector[j];
    if constexpr (Row::kHasResidual) in.residual = residual.vector[j];
    return in;
  };
  R squares = 0;
#pragma unroll
  for (int j = 0; j < kVectors; ++j) squares = Row::plus_squares(squares, vectors(j));
  const R mean = group.combine(squares, Plus()) / static_cast<R>(row.n) + static_cast<R>(eps);
  if (is_safe(mean)) {
    const R scale = 1 / sqrt(mean);
    x.forget_conversions();
    if constexpr (Row::kHasResidual) residual.forget_conversions();
#pragma unroll
    for (int j = 0; j < kVectors; ++j)
      row.write_sums(first_element<Row::kCount>(group, j), vectors(j), scale);
  }
  const bool is_unsafe = row.n > 0 && !is_safe(mean);
  if (any_of_warp(is_unsafe)) careful_rms_row(group, row, eps, scaling_for(mean), is_unsafe);
}

}  // namespace tensor_ops
