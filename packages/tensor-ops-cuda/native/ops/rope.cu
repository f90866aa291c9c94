#include "declaration/ops/rope.h"
#include "kernels/rope.cuh"
#include "kernels/vector_driver.cuh"
#include "op.h"

namespace tensor_ops {
namespace {

// The arrays are x, cos, sin and y. Cosines and sines may have other elements than x: float32.
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
}  // namespace tensor_ops

DECLARE_OP(rope, launch_rope)
