#include <algorithm>

#include "kernels/addresses.cuh"
#include "kernels/arithmetic.cuh"
#include "kernels/elements.cuh"
#include "kernels/launch.cuh"
#include "op.h"

namespace tensor_ops {
namespace {

// Factors so scaled that no product overflows, whose result overflows only if it is too large.
template <class R>
struct Scales;
template <>
struct Scales<float> {
  static constexpr float kSmall = 0x1p-70f, kLarge = 0x1p70f;
};
template <>
struct Scales<double> {
  static constexpr double kSmall = 0x1p-540, kLarge = 0x1p540;
};

// a * b + c * d to 1.5 ULP, without cancellation (Kahan).
template <class R>
__device__ __forceinline__ R sum_of_products(R a, R b, R c, R d) {
  const R product = c * d;
  return fused(a, b, product) + product_error(c, d, product);
}

// The same, and where all products are exact the bits of fused(a, b, c * d): adding an error of 0
// would take the sign of a zero.
__device__ __forceinline__ float sum_of_wide_products(float a, float b, float c, float d) {
  const float product = c * d, sum = fused(a, b, product), error = product_error(c, d, product);
  return error == 0 ? sum : sum + error;
}

// A product so scaled; of an infinity it is what it is.
template <class R>
__device__ __forceinline__ R small_product(R a, R b) {
  constexpr R kInfinity = static_cast<R>(INFINITY);
  if (magnitude(a) == kInfinity || magnitude(b) == kInfinity) return a * b;
  return (a * Scales<R>::kSmall) * (b * Scales<R>::kSmall);
}

// The same for numbers of which any may be infinite, or overflow in a product. What FMA leaves of
// an infinity is NaN: then the formula itself.
template <class R>
__device__ __noinline__ R careful_sum_of_products(R a, R b, R c, R d) {
  constexpr R kSmall = Scales<R>::kSmall, kLarge = Scales<R>::kLarge;
  const R careful = sum_of_products(a * kSmall, b * kSmall, c * kSmall, d * kSmall);
  const R plain = small_product(a, b) + small_product(c, d);
  return ((is_finite(careful) ? careful : plain) * kLarge) * kLarge;
}

// The rotation of a pair.
template <class R>
struct Pair {
  R a, b;
};
template <class Element, class Angle, class R = Real<Element>>
__device__ __forceinline__ Pair<R> turned(R a, R b, R c, R s) {
  if constexpr (is_half<Angle>)  // whose products are exact
    return {fused(a, c, -(b * s)), fused(b, c, a * s)};
  else if constexpr (is_half<Element>)
    return {sum_of_wide_products(a, c, -b, s), sum_of_wide_products(b, c, a, s)};
  else
    return {sum_of_products(a, c, -b, s), sum_of_products(b, c, a, s)};
}

struct RopeArrays {
  void* array[4];  // x, cos, sin, y
};

// The pairs of a row are x[i], x[n / 2 + i] or, interleaved, x[2 i], x[2 i + 1]. Each thread turns
// kCount pairs. The angles' cosines and sines may have other elements than x: float32.
template <class Element, class Angle, bool kInterleaved, int kCount>
__global__ void __launch_bounds__(256, 1)
    rope_pairs(const __grid_constant__ RopeArrays arrays, const __grid_constant__ Rows rows,
               std::int64_t pairs, std::int64_t per_row) {
  using R = Real<Element>;
  using Vector = Packed<Element, kCount>;
  const std::int64_t vectors = rows.count * per_row;
  const std::int64_t vector = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (vector >= vectors) return;
  const std::int64_t row = quotient_of(vector, per_row, vectors < (std::int64_t{1} << 31));
  const std::int64_t first = (vector - row * per_row) * kCount;
  const RowOffsets<4> offset(rows, row);
  const auto at = [&](int k) { return static_cast<Element*>(arrays.array[k]) + offset.of[k]; };
  const auto angles = [&](int k) {
    const auto* from = static_cast<const Angle*>(arrays.array[k]) + offset.of[k] + first;
    return *reinterpret_cast<const Packed<Angle, kCount>*>(from);
  };
  const std::int64_t low = kInterleaved ? 2 * first : first;
  const std::int64_t high = kInterleaved ? low + kCount : low + pairs;
  const auto load = [](const Element* from) { return *reinterpret_cast<const Vector*>(from); };
  const Vector x_low = load(at(0) + low), x_high = load(at(0) + high);
  const auto cosine = angles(1), sine = angles(2);

  Vector y_low, y_high;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    // Where the pair lies in the two vectors taken together.
    const int place_a = kInterleaved ? 2 * i : i;
    const int place_b = kInterleaved ? 2 * i + 1 : kCount + i;
    const auto& vector_a = place_a < kCount ? x_low : x_high;
    const auto& vector_b = place_b < kCount ? x_low : x_high;
    const R a = real(vector_a.element[place_a % kCount]), c = real(cosine.element[i]);
    const R b = real(vector_b.element[place_b % kCount]), s = real(sine.element[i]);
    Pair<R> pair = turned<Element, Angle>(a, b, c, s);
    if (!(is_finite(pair.a) && is_finite(pair.b))) {
      if (!is_finite(pair.a)) pair.a = careful_sum_of_products(a, c, -b, s);
      if (!is_finite(pair.b)) pair.b = careful_sum_of_products(b, c, a, s);
    }
    (place_a < kCount ? y_low : y_high).element[place_a % kCount] = rounded_to<Element>(pair.a);
    (place_b < kCount ? y_low : y_high).element[place_b % kCount] = rounded_to<Element>(pair.b);
  }
  *reinterpret_cast<Vector*>(at(3) + low) = y_low;
  *reinterpret_cast<Vector*>(at(3) + high) = y_high;
}

template <class Element, class Angle, bool kInterleaved, int kCount>
void launch_pairs(const Call& call) {
  RopeArrays arrays{};
  std::copy_n(call.array, 4, arrays.array);
  const std::int64_t pairs = call.n / 2, per_row = pairs / kCount;
  const std::int64_t blocks = (call.rows.count * per_row + 255) / 256;
  launch(call, {static_cast<unsigned>(blocks), 256},
         rope_pairs<Element, Angle, kInterleaved, kCount>, arrays, call.rows, pairs, per_row);
}

template <class Element, class Angle>
void launch_angles(const Call& call) {
  constexpr int kCount = kWidth<Element>;
  const bool in_vectors = fits_vectors(call, 4, kCount) && call.n / 2 % kCount == 0;
  if (call.variant == 0)
    in_vectors ? launch_pairs<Element, Angle, false, kCount>(call)
               : launch_pairs<Element, Angle, false, 1>(call);
  else
    in_vectors ? launch_pairs<Element, Angle, true, kCount>(call)
               : launch_pairs<Element, Angle, true, 1>(call);
}

void launch_rope(const Call& call) {
  with_element(call.dtype, [&](auto x) {
    using X = decltype(x);
    with_wide_element<X>(call.array_dtype[1],
                         [&](auto angle) { launch_angles<X, decltype(angle)>(call); });
  });
}

}  // namespace

DECLARE_OP(
    rope,
    {
        "rope",
        Walk::kRows,
        "Rotary position embedding of the last axis.",
        "y0 = a * cos - b * sin\n"
        "    y1 = b * cos + a * sin\n\n"
        "with the pairs (a, b) = (x[i], x[i + n/2]), or (x[2 i], x[2 i + 1]) if interleaved.",
        {rows("x", "Input; n must be even."), wide(half_rows("cos", "Cosines of the angles.")),
         like("cos", half_rows("sin", "Sines of the angles.")),
         keyword_flag("interleaved", "Rotate neighbours instead of the row's two halves.")},
        {{"y", "The rotated rows."}},
        "J. Su et al., RoFormer: enhanced transformer with rotary position embedding, "
        "arXiv:2104.09864.",
        launch_rope,
    })

}  // namespace tensor_ops
