#include "declaration/ops/softmax.h"
#include "kernels/row_driver.cuh"
#include "kernels/softmax.cuh"
#include "op.h"

namespace tensor_ops {
namespace {

template <class X>
struct Softmax : RowCall<2> {
  using Element = X;
  using R = Real<X>;
  using Measured = Softmax;
  static constexpr int kMostVectors = kManyVectors, kSteps = 3;

  SoftmaxScale<R> scale;

  Softmax(const Call& call, bool whole_)
      : RowCall<2>(call, whole_), scale(softmax_scale<R>(call.scalar[0])) {}

  DEVICE SoftmaxRow<X> at(std::int64_t index, std::int64_t first, int n) const {
    const RowAddresses<2> address(*this, index, first);
    return {{address.in<X>(0), address.in<X>(1), n, whole}, scale};
  }

  template <int kVectors, class Group>
  DEVICE void row(Group& group, const SoftmaxRow<X>& row) const {
    softmax_row<kVectors>(group, row);
  }

  // A part stores its peak in the first step, and its sum of exponentials in the second one.
  template <int kStep>
  DEVICE void part(BlockGroup& group, const SoftmaxRow<X>& row, const PartsOfRow& parts) const {
    if constexpr (kStep == 0) {
      parts.store(group, row.find_peak(group));
    } else {
      const double sign = scale.sign();
      const auto peak_of = [&](std::int64_t part) { return parts.number(0, part) * sign; };
      const R peak = static_cast<R>(sign * parts.combine(group, -INFINITY, peak_of, Greater()));
      const R exponent = row.peak_exponent(peak);
      const auto exponential = [&](R x) { return row.exponential(x, exponent); };
      if constexpr (kStep == 1) {
        const double sum = row.is_ordinary(peak) ? row.combine(group, R{0}, exponential, Plus())
                                                 : row.careful_sum(group, peak);
        parts.store<1>(group, sum);
      } else {
        const double total =
            parts.sum(group, [&](std::int64_t part) { return parts.number(1, part); });
        const R factor = static_cast<R>(1 / total);
        if (row.is_ordinary(peak))
          row.write_all(group, [&](R x) { return exponential(x) * factor; });
        else
          row.write_carefully(group, peak, total);
      }
    }
  }
};

// The arrays are x and y.
void launch_softmax(const Call& call) {
  with_element(call.dtype, [&](auto x) { launch_rows<Softmax<decltype(x)>>(call); });
}

}  // namespace
}  // namespace tensor_ops

DECLARE_OP(softmax, launch_softmax)
