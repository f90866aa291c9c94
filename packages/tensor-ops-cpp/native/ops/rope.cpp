// rope: rotary position embedding, the rotation of pairs of elements of each row.
#include "op.h"

#if KERNEL_PASS

#include "kernels/rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// a * b + c * d without cancellation (Kahan): at most 1.5 ULP.
template <class C>
TENSOR_OPS_INLINE C sum_of_products(C a, C b, C c, C d) {
  const Pair<C> cd = exact_product(c, d);
#if TENSOR_OPS_HAS_FMA
  const C main = fma(a, b, cd.hi);
  const C rest = cd.lo;
#else
  const Pair<C> ab = exact_product(a, b);
  const Pair<C> total = exact_sum(ab.hi, cd.hi);
  const C main = total.hi;
  const C rest = total.lo + (ab.lo + cd.lo);
#endif
  // Where something overflowed or is infinite the rest means nothing.
  return main + (rest - rest == 0 ? rest : 0);
}

#if !TENSOR_OPS_HAS_FMA
// Products of two float32 numbers are exact in double.
template <>
TENSOR_OPS_INLINE float sum_of_products(float a, float b, float c, float d) {
  return static_cast<float>(static_cast<double>(a) * static_cast<double>(b) +
                            static_cast<double>(c) * static_cast<double>(d));
}
#endif

template <class Element>
struct Rotation {
  using T = typename Element::Storage;
  using C = typename Element::Compute;

  // Products of two half-precision numbers are exact in float32 as they are.
  static TENSOR_OPS_INLINE T combine(C a, C b, C c, C d) {
    if constexpr (sizeof(T) == 2)
      return Element::store(a * b + c * d);
    else
      return Element::store(sum_of_products(a, b, c, d));
  }

  // The pairs are x[i * step], x[i * step + distance].
  static TENSOR_OPS_INLINE void rotate(const T* x, const T* cos, const T* sin, T* y,
                                       std::size_t pairs, std::size_t step, std::size_t distance) {
#pragma omp simd
    for (std::size_t i = 0; i < pairs; ++i) {
      const C a = Element::load(x[i * step]), b = Element::load(x[i * step + distance]);
      const C c = Element::load(cos[i]), s = Element::load(sin[i]);
      y[i * step] = combine(a, c, -b, s);
      y[i * step + distance] = combine(b, c, a, s);
    }
  }
};

template <class Element>
struct HalfSplit {
  using T = typename Element::Storage;
  static void run(const Run& run) {
    for (std::size_t r = 0; r < run.rows; ++r)
      Rotation<Element>::rotate(row_of<const T>(run, 0, r), row_of<const T>(run, 1, r),
                                row_of<const T>(run, 2, r), row_of<T>(run, 3, r), run.n / 2, 1,
                                run.n / 2);
  }
};

template <class Element>
struct Interleaved {
  using T = typename Element::Storage;
  static void run(const Run& run) {
    for (std::size_t r = 0; r < run.rows; ++r)
      Rotation<Element>::rotate(row_of<const T>(run, 0, r), row_of<const T>(run, 1, r),
                                row_of<const T>(run, 2, r), row_of<T>(run, 3, r), run.n / 2, 2, 1);
  }
};

}  // namespace

EXPORT_KERNELS(rope, each_dtype<HalfSplit>(), each_dtype<Interleaved>())

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {

DECLARE_OP(
    rope, {
              "rope",
              Walk::kRows,
              Cost::kArithmetic,
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

#endif
