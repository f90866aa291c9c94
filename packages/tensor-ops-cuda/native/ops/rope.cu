#include "kernels/rope.cuh"
#include "kernels/vector_driver.cuh"
#include "op.h"

namespace tensor_ops {
namespace {

// Of x, cos, sin and y. The cosines and sines may have other elements than x: float32.
template <class Element, class Angle, bool kInterleaved, int kCount>
struct Rope : Arrays<4> {
  std::int64_t pairs;

  explicit Rope(const Call& call) : Arrays<4>(call), pairs(call.n / 2) {}

  DEVICE void vector(std::int64_t row, std::int64_t index) const {
    const RowAddresses<4> address(*this, row);
    rotate_pairs<kInterleaved, kCount>(address.in<const Element>(0), address.in<const Angle>(1),
                                       address.in<const Angle>(2), address.in<Element>(3),
                                       index * kCount, pairs);
  }
};

template <class Element, class Angle, bool kInterleaved>
void launch_pairs(const Call& call) {
  constexpr int kCount = kWidth<Element>;
  const std::int64_t pairs = call.n / 2;
  if (fits_vectors(call, 4, kCount) && pairs % kCount == 0)
    launch_vectors(call, Rope<Element, Angle, kInterleaved, kCount>(call), pairs / kCount);
  else
    launch_vectors(call, Rope<Element, Angle, kInterleaved, 1>(call), pairs);
}

void launch_rope(const Call& call) {
  with_element(call.dtype, [&](auto x) {
    using X = decltype(x);
    with_wide_element<X>(call.array_dtype[1], [&](auto angle) {
      using Angle = decltype(angle);
      call.variant == 0 ? launch_pairs<X, Angle, false>(call) : launch_pairs<X, Angle, true>(call);
    });
  });
}

}  // namespace

DECLARE_OP(
    rope, launch_rope,
    {
        "rope",
        Walk::kRows,
        "Rotary position embedding of the last axis.",
        "y0 = a * cos - b * sin\n"
        "    y1 = b * cos + a * sin\n\n"
        "with the pairs (a, b) = (x[i], x[i + n/2]), or (x[2 i], x[2 i + 1]) if interleaved.",
        {rows("x", "Input; n must be even."), half_rows("cos", "Cosines of the angles."),
         half_rows("sin", "Sines of the angles."),
         keyword_flag("interleaved", "Rotate neighbours instead of the row's two halves.")},
        {{"y", "The rotated rows."}},
        "J. Su et al., RoFormer: enhanced transformer with rotary position embedding, "
        "arXiv:2104.09864.",
    })

}  // namespace tensor_ops
