// The op of rms_norm and of add_rms_norm, which has a residual.
#pragma once

#include <type_traits>

#include "kernels/rms.cuh"
#include "kernels/row_driver.cuh"

namespace tensor_ops {

template <class X, class Weight, class Residual = NoResidual>
struct RmsNorm : RowCall<std::is_same_v<Residual, NoResidual> ? 3 : 5> {
  using Element = X;
  using Row = RmsRow<X, Weight, Residual>;
  using R = Real<X>;
  using Measured = RmsNorm<X, X, Residual>;
  // Two inputs take twice the registers.
  static constexpr int kMostVectors = Row::kHasResidual ? kFewVectors : kManyVectors;
  static constexpr int kSteps = 2;

  double eps;

  RmsNorm(const Call& call, bool whole_)
      : RowCall<Row::kHasResidual ? 5 : 3>(call, whole_), eps(call.scalar[0]) {}

  DEVICE Row at(std::int64_t index, std::int64_t first, int n) const {
    constexpr int kWeight = Row::kHasResidual ? 2 : 1;
    const RowAddresses address(*this, index, first);
    Row row{{address.template in<X>(0), address.template in<X>(kWeight + 1), n, this->whole},
            address.template in<Weight>(kWeight),
            nullptr,
            nullptr};
    if constexpr (Row::kHasResidual) {
      row.residual = address.template in<Residual>(1);
      row.h = address.template in<Residual>(4);
    }
    return row;
  }

  template <int kVectors, class Group>
  DEVICE void row(Group& group, const Row& row) const {
    rms_row<kVectors>(group, row, eps);
  }

  // A part stores the factor of its elements and the sum of their squares. The factor is 1 if that
  // sum is safe, and for float, whose squares are added in double.
  template <int kStep>
  DEVICE void part(BlockGroup& group, const Row& row, const PartsOfRow& parts) const {
    constexpr bool is_double = sizeof(R) == 8;
    if constexpr (kStep == 0) {
      double squares = row.squares(group, Unscaled()), factor = 1;
      const double mean = squares / row.n + eps;
      if (is_double && !is_safe(mean)) {
        factor = scaling_for(mean).factor;
        squares = row.squares(group, Scaled{factor});
      }
      parts.store(group, squares, factor);
    } else {
      // All parts take the least of their factors.
      const auto factor_of = [&](std::int64_t part) { return parts.number(1, part); };
      const Scaled scaled{parts.combine(group, kGrow, factor_of, Lesser())};
      const double squares = parts.sum(group, [&](std::int64_t part) {
        const double less = scaled.factor / factor_of(part);
        return (parts.number(0, part) * less) * less;
      });
      const double mean = squares / static_cast<double>(parts.n) + scaled(scaled(eps));
      if constexpr (is_double)
        row.write_all(group, 1 / sqrt(mean), scaled);
      else if (is_safe(static_cast<R>(mean)))
        row.write_all(group, static_cast<R>(1 / sqrt(mean)), Unscaled());
      else
        row.write_all(group, 1 / sqrt(mean), Unscaled());
    }
  }
};

}  // namespace tensor_ops
