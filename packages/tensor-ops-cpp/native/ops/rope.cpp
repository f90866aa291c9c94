// rope: rotary position embedding, the rotation of pairs of elements of each row.
#include "op.h"

#if KERNEL_PASS

#include <utility>

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

// The same for numbers of which any may be infinite or overflow in a product: then by the formula in
// double. An element's bits do not depend on its neighbours.
template <class C>
TENSOR_OPS_INLINE C any_sum_of_products(C a, C b, C c, C d) {
  const C value = sum_of_products(a, b, c, d);
  const double plain = static_cast<double>(a) * static_cast<double>(b) +
                       static_cast<double>(c) * static_cast<double>(d);
  return is_finite(value) ? value : static_cast<C>(plain);
}

// The pairs of a row are x[i], x[n / 2 + i].
struct HalfSplit {
  static TENSOR_OPS_INLINE std::size_t first(std::size_t i, std::size_t) { return i; }
  static TENSOR_OPS_INLINE std::size_t second(std::size_t i, std::size_t pairs) {
    return pairs + i;
  }
  template <class Element>
  static TENSOR_OPS_INLINE Pair<VectorFor<Element>> load_pairs(
      const typename Element::Storage* x, std::size_t i, std::size_t pairs) {
    return {load<Element>(x + i, Whole<1>{}).vector[0],
            load<Element>(x + pairs + i, Whole<1>{}).vector[0]};
  }
  template <class Element>
  static TENSOR_OPS_INLINE void store_pairs(typename Element::Storage* y, std::size_t i,
                                            std::size_t pairs, Pair<VectorFor<Element>> pair) {
    store<Element>(y + i, Block<VectorFor<Element>, 1>{{pair.hi}}, Whole<1>{});
    store<Element>(y + pairs + i, Block<VectorFor<Element>, 1>{{pair.lo}}, Whole<1>{});
  }
};

// The pairs of a row are x[2 i], x[2 i + 1].
struct Interleaved {
  static TENSOR_OPS_INLINE std::size_t first(std::size_t i, std::size_t) { return 2 * i; }
  static TENSOR_OPS_INLINE std::size_t second(std::size_t i, std::size_t) { return 2 * i + 1; }
  template <class Element>
  static TENSOR_OPS_INLINE Pair<VectorFor<Element>> load_pairs(
      const typename Element::Storage* x, std::size_t i, std::size_t) {
    constexpr std::make_index_sequence<kLanesFor<Element>> lanes;
    const auto block = load<Element>(x + 2 * i, Whole<2>{});
    return {every_other<0>(block, lanes), every_other<1>(block, lanes)};
  }
  template <class Element>
  static TENSOR_OPS_INLINE void store_pairs(typename Element::Storage* y, std::size_t i, std::size_t,
                                            Pair<VectorFor<Element>> pair) {
    constexpr std::make_index_sequence<kLanesFor<Element>> lanes;
    const Block<VectorFor<Element>, 2> block{
        {in_turn<0>(pair, lanes), in_turn<kLanesFor<Element> / 2>(pair, lanes)}};
    store<Element>(y + 2 * i, block, Whole<2>{});
  }

 private:
  template <std::size_t begin, class V, std::size_t... L>
  static TENSOR_OPS_INLINE V every_other(const Block<V, 2>& block, std::index_sequence<L...>) {
    return __builtin_shufflevector(block.vector[0], block.vector[1], (begin + 2 * L)...);
  }
  // From the lane `begin` of both.
  template <std::size_t begin, class V, std::size_t... L>
  static TENSOR_OPS_INLINE V in_turn(Pair<V> pair, std::index_sequence<L...>) {
    return __builtin_shufflevector(pair.hi, pair.lo,
                                   (begin + L / 2 + L % 2 * sizeof...(L))...);
  }
};

template <class Element, class Pairs>
struct Rotation {
  using T = typename Element::Storage;
  using C = typename Element::Compute;
  using V = Vector<C>;
  static constexpr std::size_t lanes = kLanes<C>;

  struct Row {
    const T *x, *cos, *sin;
    T* y;
  };
  static TENSOR_OPS_INLINE Row row_at(const Run& run, std::size_t r) {
    return {row_of<const T>(run, 0, r), row_of<const T>(run, 1, r), row_of<const T>(run, 2, r),
            row_of<T>(run, 3, r)};
  }

  static TENSOR_OPS_INLINE void rotate(Row row, std::size_t pairs) {
    std::size_t i = 0;
#if TENSOR_OPS_HAS_FMA
    for (; i + lanes <= pairs; i += lanes) rotate_vector(row, i, pairs);
#endif
#pragma omp simd
    for (std::size_t j = i; j < pairs; ++j) rotate_pair(row, j, pairs);
  }

  static TENSOR_OPS_INLINE void rotate_vector(Row row, std::size_t i, std::size_t pairs) {
    const Pair<V> x = Pairs::template load_pairs<Element>(row.x, i, pairs);
    const V cos = load<Element>(row.cos + i, Whole<1>{}).vector[0];
    const V sin = load<Element>(row.sin + i, Whole<1>{}).vector[0];
    Pair<V> turned{vector_sum(x.hi, cos, -x.lo, sin), vector_sum(x.lo, cos, x.hi, sin)};
    MagnitudeCheck<C> check;
    check.include(turned.hi);
    check.include(turned.lo);
    if (__builtin_expect(!check.at_most(kLargest), 0)) {
      // Copies, or the compiler would keep the originals in memory.
      Pair<V> mended = turned;
      mend(mended, x, cos, sin);
      turned = mended;
    }
    Pairs::template store_pairs<Element>(row.y, i, pairs, turned);
  }

  // Products of two half-precision numbers are exact in float32 as they are.
  static TENSOR_OPS_INLINE V vector_sum(V a, V b, V c, V d) {
    const V cd = c * d;
    if constexpr (is_half<Element>) return fma(a, b, cd);
    return fma(a, b, cd) + fma(c, d, -cd);
  }

  // The lanes that are not finite.
  static __attribute__((noinline)) void mend(Pair<V>& turned, const Pair<V>& x, const V& cos,
                                             const V& sin) {
    for (std::size_t l = 0; l < lanes; ++l) {
      turned.hi[l] = any_sum_of_products(x.hi[l], cos[l], -x.lo[l], sin[l]);
      turned.lo[l] = any_sum_of_products(x.lo[l], cos[l], x.hi[l], sin[l]);
    }
  }

  static TENSOR_OPS_INLINE void rotate_pair(Row row, std::size_t i, std::size_t pairs) {
    const std::size_t first = Pairs::first(i, pairs), second = Pairs::second(i, pairs);
    const C a = Element::load(row.x[first]), b = Element::load(row.x[second]);
    const C cos = Element::load(row.cos[i]), sin = Element::load(row.sin[i]);
    row.y[first] = Element::store(any_sum_of_products(a, cos, -b, sin));
    row.y[second] = Element::store(any_sum_of_products(b, cos, a, sin));
  }

  // Rows that follow one another in memory, by way of a buffer in the first-level cache from which
  // whole lines are streamed.
  static void rotate_streaming(const Run& run) {
    constexpr std::size_t kElements = 8192 / sizeof(T);
    alignas(64) T buffer[kElements];
    const std::size_t group = kElements / run.n;
    for (std::size_t begin = 0; begin < run.rows; begin += group) {
      const std::size_t count = run.rows - begin < group ? run.rows - begin : group;
      for (std::size_t r = 0; r < count; ++r) {
        Row row = row_at(run, begin + r);
        prefetch(row.x + kAhead / sizeof(T), run.n * sizeof(T));
        row.y = buffer + r * run.n;
        rotate(row, run.n / 2);
      }
      copy_row<Element>(true, count * run.n, row_of<T>(run, 3, begin), buffer);
    }
    finish_streams();
  }

  static bool can_stream(const Run& run) {
    return run.streams && run.stride[3] == static_cast<std::ptrdiff_t>(run.n * sizeof(T)) &&
           run.n * sizeof(T) <= 2048;
  }

  static void run(const Run& run) {
    if (can_stream(run)) return rotate_streaming(run);
    for (std::size_t r = 0; r < run.rows; ++r) rotate(row_at(run, r), run.n / 2);
  }

  static constexpr C kLargest =
      sizeof(C) == sizeof(float) ? static_cast<C>(__FLT_MAX__) : static_cast<C>(__DBL_MAX__);
};

template <class Element>
using HalfSplitRotation = Rotation<Element, HalfSplit>;
template <class Element>
using InterleavedRotation = Rotation<Element, Interleaved>;

}  // namespace

EXPORT_KERNELS(rope, each_dtype<HalfSplitRotation>(), each_dtype<InterleavedRotation>())

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
