// rope: rotary position embedding, the rotation of pairs of elements of each row.
#include "op.h"

#if KERNEL_PASS

#include <type_traits>

#include "kernels/rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// a * b + c * d without cancellation (Kahan): at most 1.5 ULP. Not finite, but not always what the
// formula gives, where something on the way overflows or is infinite.
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
  return main + rest;
}

#if !TENSOR_OPS_HAS_FMA
// Products of two float32 numbers are exact in double.
template <>
TENSOR_OPS_INLINE float sum_of_products(float a, float b, float c, float d) {
  return static_cast<float>(static_cast<double>(a) * static_cast<double>(b) +
                            static_cast<double>(c) * static_cast<double>(d));
}
#endif

// Whether numbers are all finite. Each times 0 is added up, in lanes, which stay +0 bit by bit.
template <class C>
struct FiniteCheck {
  static constexpr std::size_t lanes = Lanes<C>::count / 4;
  C lane[2][lanes] = {};

  TENSOR_OPS_INLINE void include(std::size_t l, Pair<C> numbers) {
    lane[0][l] = fma(numbers.hi, C(0), lane[0][l]);
    lane[1][l] = fma(numbers.lo, C(0), lane[1][l]);
  }
  TENSOR_OPS_INLINE bool passed() const {
    std::uint64_t words[sizeof lane / 8], any = 0;
    __builtin_memcpy(words, lane, sizeof lane);
    for (const std::uint64_t word : words) any |= word;
    return any == 0;
  }
};

template <class Element>
struct Rotation {
  using T = typename Element::Storage;
  using C = typename Element::Compute;

  // The pairs of a row are x[i * step], x[i * step + distance].
  struct Layout {
    std::size_t pairs, step, distance;
  };
  struct Row {
    const T *x, *cos, *sin;
    T* y;
  };
  static TENSOR_OPS_INLINE Row row(const Run& run, std::size_t r) {
    return {row_of<const T>(run, 0, r), row_of<const T>(run, 1, r), row_of<const T>(run, 2, r),
            row_of<T>(run, 3, r)};
  }

  struct Cheaply {
    // Products of two half-precision numbers are exact in float32 as they are.
    static TENSOR_OPS_INLINE C combine(C a, C b, C c, C d) {
      if constexpr (sizeof(T) == 2)
        return a * b + c * d;
      else
        return sum_of_products(a, b, c, d);
    }
  };

  // Where that is not finite, by the formula in double: an element's bits do not depend on its
  // neighbours.
  struct Anyhow {
    static TENSOR_OPS_INLINE C combine(C a, C b, C c, C d) {
      const C value = Cheaply::combine(a, b, c, d);
      const double plain = static_cast<double>(a) * static_cast<double>(b) +
                           static_cast<double>(c) * static_cast<double>(d);
      return is_finite(value) ? value : static_cast<C>(plain);
    }
  };

  // Returns what it stores.
  template <class How>
  static TENSOR_OPS_INLINE Pair<C> rotate_pair(Row row, Layout layout, std::size_t i) {
    const std::size_t first = i * layout.step, second = first + layout.distance;
    const C a = Element::load(row.x[first]), b = Element::load(row.x[second]);
    const C c = Element::load(row.cos[i]), s = Element::load(row.sin[i]);
    const Pair<C> turned{How::combine(a, c, -b, s), How::combine(b, c, a, s)};
    row.y[first] = Element::store(turned.hi);
    row.y[second] = Element::store(turned.lo);
    return turned;
  }

  template <class How>
  static TENSOR_OPS_INLINE void rotate(Row row, Layout layout) {
    const std::size_t step = layout.step, distance = layout.distance;
    const T *x = row.x, *cos = row.cos, *sin = row.sin;
    T* y = row.y;
#pragma omp simd
    for (std::size_t i = 0; i < layout.pairs; ++i) {
      const C a = Element::load(x[i * step]), b = Element::load(x[i * step + distance]);
      const C c = Element::load(cos[i]), s = Element::load(sin[i]);
      y[i * step] = Element::store(How::combine(a, c, -b, s));
      y[i * step + distance] = Element::store(How::combine(b, c, a, s));
    }
  }

  static TENSOR_OPS_INLINE void rotate_checking(Row row, Layout layout, FiniteCheck<C>& check) {
    std::size_t i = 0;
    for (; i + check.lanes <= layout.pairs; i += check.lanes) {
#pragma omp simd
      for (std::size_t l = 0; l < check.lanes; ++l)
        check.include(l, rotate_pair<Cheaply>(row, layout, i + l));
    }
#pragma omp simd
    for (std::size_t l = 0; l < layout.pairs - i; ++l)
      check.include(l, rotate_pair<Cheaply>(row, layout, i + l));
  }

  // Whether all are so small that no sum of two of their products overflows.
  static TENSOR_OPS_INLINE bool are_moderate(const T* x, std::size_t n) {
    using Bits = UnsignedOf<T>;
    constexpr Bits sign = static_cast<Bits>(Bits(1) << (8 * sizeof(T) - 1));
    const T bound = Element::store(static_cast<C>(sizeof(C) == 4 ? 0x1p63 : 0x1p511));
    // Added to the bits of a magnitude, this carries into the sign's place from the bound on.
    const Bits complement = static_cast<Bits>(sign - bit_cast<Bits>(bound));
    Bits any = 0;
    for (std::size_t i = 0; i < n; ++i)
      any |= static_cast<Bits>((bit_cast<Bits>(x[i]) & static_cast<Bits>(sign - 1)) + complement);
    return (any & sign) == 0;
  }

  template <class How>
  static TENSOR_OPS_INLINE void rotate_rows(const Run& run, std::size_t begin, std::size_t end,
                                            Layout layout) {
    for (std::size_t r = begin; r < end; ++r) rotate<How>(row(run, r), layout);
  }

  // In place, where the results overwrite the input.
  static TENSOR_OPS_INLINE void rotate_after_a_look(const Run& run, Layout layout) {
    Row before{};
    bool moderate_angles = false;
    for (std::size_t r = 0; r < run.rows; ++r) {
      const Row each = row(run, r);
      if (each.cos != before.cos || each.sin != before.sin)  // heads share their angles
        moderate_angles =
            are_moderate(each.cos, layout.pairs) && are_moderate(each.sin, layout.pairs);
      before = each;
      if (moderate_angles && are_moderate(each.x, run.n))
        rotate<Cheaply>(each, layout);
      else
        rotate<Anyhow>(each, layout);
    }
  }

  // A few rows at a time; again where not all results are finite.
  static TENSOR_OPS_INLINE void rotate_twice_if_needed(const Run& run, Layout layout) {
    constexpr std::size_t elements = 8192 / sizeof(T);
    const std::size_t group = run.n < elements ? elements / run.n : 1;
    for (std::size_t begin = 0; begin < run.rows; begin += group) {
      const std::size_t end = run.rows - begin < group ? run.rows : begin + group;
      FiniteCheck<C> check;
      for (std::size_t r = begin; r < end; ++r) rotate_checking(row(run, r), layout, check);
      if (!check.passed()) rotate_rows<Anyhow>(run, begin, end, layout);
    }
  }

  static TENSOR_OPS_INLINE void all(const Run& run, std::size_t step, std::size_t distance) {
    const Layout layout{run.n / 2, step, distance};
    if (std::is_same_v<Element, Float16>)
      rotate_rows<Cheaply>(run, 0, run.rows, layout);  // nothing can overflow in float32
    else if (run.data[0] == run.data[3])
      rotate_after_a_look(run, layout);
    else
      rotate_twice_if_needed(run, layout);
  }
};

template <class Element>
struct HalfSplit {
  static void run(const Run& run) { Rotation<Element>::all(run, 1, run.n / 2); }
};

template <class Element>
struct Interleaved {
  static void run(const Run& run) { Rotation<Element>::all(run, 2, 1); }
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
