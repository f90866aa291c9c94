// Pairs of a row, rotated by the angles whose cosines and sines are given.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/arithmetic.cuh"
#include "kernels/elements.cuh"

namespace tensor_ops {

// Factors times kSmall have products that cannot overflow, and a sum of these times kLarge twice
// overflows only if it is too large.
template <class R>
constexpr R kSmall = static_cast<R>(sizeof(R) == 4 ? 0x1p-70 : 0x1p-540);
template <class R>
constexpr R kLarge = static_cast<R>(sizeof(R) == 4 ? 0x1p70 : 0x1p540);

// a * b + c * d to 1.5 ULP, without cancellation (Kahan).
template <class R>
DEVICE R sum_of_products(R a, R b, R c, R d) {
  const R product = c * d;
  return fused(a, b, product) + product_error(c, d, product);
}

// The same, and where all products are exact the bits of fused(a, b, c * d): adding an error of 0
// could change the sign of a zero.
DEVICE float sum_of_wide_products(float a, float b, float c, float d) {
  const float product = c * d, sum = fused(a, b, product), error = product_error(c, d, product);
  return error == 0 ? sum : sum + error;
}

// A product of scaled factors; one with an infinity is not scaled.
template <class R>
DEVICE R small_product(R a, R b) {
  constexpr R kInfinity = static_cast<R>(INFINITY);
  if (magnitude(a) == kInfinity || magnitude(b) == kInfinity) return a * b;
  return (a * kSmall<R>)*(b * kSmall<R>);
}

// a * b + c * d where numbers may be infinite and products may overflow. The rounding error of an
// infinite product is NaN: then the plain formula is right.
template <class R>
__device__ __noinline__ R careful_sum_of_products(R a, R b, R c, R d) {
  const R careful = sum_of_products(a * kSmall<R>, b * kSmall<R>, c * kSmall<R>, d * kSmall<R>);
  const R plain = small_product(a, b) + small_product(c, d);
  return ((is_finite(careful) ? careful : plain) * kLarge<R>)*kLarge<R>;
}

// The rotation of a pair by an angle, given its cosine and sine.
template <class R>
struct RotatedPair {
  R a, b;
};
template <class Element, class Angle, class R = Real<Element>>
DEVICE RotatedPair<R> rotated(R a, R b, R c, R s) {
  if constexpr (is_half<Angle>)  // the products are exact
    return {fused(a, c, -(b * s)), fused(b, c, a * s)};
  else if constexpr (is_half<Element>)
    return {sum_of_wide_products(a, c, -b, s), sum_of_wide_products(b, c, a, s)};
  else
    return {sum_of_products(a, c, -b, s), sum_of_products(b, c, a, s)};
}

// The same where products may overflow.
template <class Element, class Angle, class R = Real<Element>>
DEVICE RotatedPair<R> rotated_in_range(R a, R b, R c, R s) {
  RotatedPair<R> pair = rotated<Element, Angle>(a, b, c, s);
  if (!(is_finite(pair.a) && is_finite(pair.b))) {
    if (!is_finite(pair.a)) pair.a = careful_sum_of_products(a, c, -b, s);
    if (!is_finite(pair.b)) pair.b = careful_sum_of_products(b, c, a, s);
  }
  return pair;
}

// Rotates kCount pairs of a row, from pair `first` on. The pairs of a row are x[i], x[pairs + i]
// or, interleaved, x[2 i], x[2 i + 1].
template <bool kInterleaved, int kCount, class Element, class Angle>
DEVICE void rotate_pairs(const Element* x, const Angle* cos, const Angle* sin, Element* y,
                         std::int64_t first, std::int64_t pairs) {
  using R = Real<Element>;
  using Vector = Packed<Element, kCount>;
  const std::int64_t low = kInterleaved ? 2 * first : first;
  const std::int64_t high = kInterleaved ? low + kCount : low + pairs;
  const auto load = [](auto* from) {
    using Loaded = Packed<std::remove_const_t<std::remove_pointer_t<decltype(from)>>, kCount>;
    return *reinterpret_cast<const Loaded*>(from);
  };
  const Vector in[2] = {load(x + low), load(x + high)};
  const auto cosine = load(cos + first), sine = load(sin + first);

  Vector out[2];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    // The places of the pair in the two vectors taken together.
    const int place_a = kInterleaved ? 2 * i : i;
    const int place_b = kInterleaved ? 2 * i + 1 : kCount + i;
    const R a = real(in[place_a / kCount].element[place_a % kCount]), c = real(cosine.element[i]);
    const R b = real(in[place_b / kCount].element[place_b % kCount]), s = real(sine.element[i]);
    const RotatedPair<R> pair = rotated_in_range<Element, Angle>(a, b, c, s);
    out[place_a / kCount].element[place_a % kCount] = rounded_to<Element>(pair.a);
    out[place_b / kCount].element[place_b % kCount] = rounded_to<Element>(pair.b);
  }
  *reinterpret_cast<Vector*>(y + low) = out[0];
  *reinterpret_cast<Vector*>(y + high) = out[1];
}

}  // namespace tensor_ops
