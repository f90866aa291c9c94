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

// The same for numbers of which any may be infinite or overflow in a product: then by the formula
// in double. An element's bits do not depend on its neighbours.
template <class C>
TENSOR_OPS_INLINE C any_sum_of_products(C a, C b, C c, C d) {
  const C value = sum_of_products(a, b, c, d);
  const double plain = static_cast<double>(a) * static_cast<double>(b) +
                       static_cast<double>(c) * static_cast<double>(d);
  return is_finite(value) ? value : static_cast<C>(plain);
}

// Blocks of the first and of the second elements of pairs.
template <class Element, class Extent>
using PairBlock = Pair<Block<VectorFor<Element>, Extent::vectors>>;

// The pairs of a row are x[i], x[n / 2 + i].
struct HalfSplit {
  static TENSOR_OPS_INLINE std::size_t first(std::size_t i, std::size_t) { return i; }
  static TENSOR_OPS_INLINE std::size_t second(std::size_t i, std::size_t pairs) {
    return pairs + i;
  }
  template <class Element, class Extent>
  static TENSOR_OPS_INLINE PairBlock<Element, Extent> load_pairs(const typename Element::Storage* x,
                                                                 std::size_t i, std::size_t pairs,
                                                                 Extent extent) {
    return {load_unordered<Element>(x + i, extent), load_unordered<Element>(x + pairs + i, extent)};
  }
  template <class Element, class Extent>
  static TENSOR_OPS_INLINE auto load_angles(const typename Element::Storage* angles,
                                            Extent extent) {
    return load_unordered<Element>(angles, extent);
  }
  template <class Element, class Extent>
  static TENSOR_OPS_INLINE void store_pairs(typename Element::Storage* y, std::size_t i,
                                            std::size_t pairs,
                                            const PairBlock<Element, Extent>& pair, Extent extent) {
    store_unordered<Element>(y + i, pair.hi, extent);
    store_unordered<Element>(y + pairs + i, pair.lo, extent);
  }
};

// The pairs of a row are x[2 i], x[2 i + 1]. They are taken apart and put together within 16 bytes,
// where shuffles are cheap: lane L of two vectors' first elements is that of pair number_of(L).
struct Interleaved {
  static TENSOR_OPS_INLINE std::size_t first(std::size_t i, std::size_t) { return 2 * i; }
  static TENSOR_OPS_INLINE std::size_t second(std::size_t i, std::size_t) { return 2 * i + 1; }

  template <class Element, class Extent>
  static TENSOR_OPS_INLINE PairBlock<Element, Extent> load_pairs(const typename Element::Storage* x,
                                                                 std::size_t i, std::size_t,
                                                                 Extent) {
    PairBlock<Element, Extent> blocks;
    for (std::size_t u = 0; u < Extent::vectors; ++u) {
      const auto pair = load_pair<Element>(x + 2 * (i + u * kLanesFor<Element>));
      blocks.hi.vector[u] = pair.hi;
      blocks.lo.vector[u] = pair.lo;
    }
    return blocks;
  }
  template <class Element, class Extent>
  static TENSOR_OPS_INLINE auto load_angles(const typename Element::Storage* angles,
                                            Extent extent) {
    auto block = load<Element>(angles, extent);
    if constexpr (!comes_in_pairs<Element>)
      for (auto& vector : block.vector) vector = by_number(vector, AllLanes<Element>());
    return block;
  }
  template <class Element, class Extent>
  static TENSOR_OPS_INLINE void store_pairs(typename Element::Storage* y, std::size_t i,
                                            std::size_t, const PairBlock<Element, Extent>& pair,
                                            Extent) {
    for (std::size_t u = 0; u < Extent::vectors; ++u)
      store_pair<Element>(y + 2 * (i + u * kLanesFor<Element>),
                          {pair.hi.vector[u], pair.lo.vector[u]});
  }

 private:
  template <class Element>
  using AllLanes = std::make_index_sequence<kLanesFor<Element>>;

  template <class Element>
  static TENSOR_OPS_INLINE Pair<VectorFor<Element>> load_pair(const typename Element::Storage* x) {
    if constexpr (comes_in_pairs<Element>)
      return Element::widen_pair(load_vector<typename Element::PackedPair>(x));
    const auto block = load<Element>(x, Whole<2>{});
    return {every_other<0>(block, AllLanes<Element>()), every_other<1>(block, AllLanes<Element>())};
  }
  template <class Element>
  static TENSOR_OPS_INLINE void store_pair(typename Element::Storage* y,
                                           Pair<VectorFor<Element>> pair) {
    if constexpr (comes_in_pairs<Element>) return store_vector(y, Element::narrow_pair(pair));
    constexpr std::size_t half = kUnit<VectorFor<Element>> / 2;
    const Block<VectorFor<Element>, 2> block{
        {in_turn<0>(pair, AllLanes<Element>()), in_turn<half>(pair, AllLanes<Element>())}};
    store<Element>(y, block, Whole<2>{});
  }

  // Lanes in 16 bytes.
  template <class V>
  static constexpr std::size_t kUnit = 16 / sizeof(Lane<V>);
  // Of lane L: where its unit begins, and where L is in the half unit that is of one vector.
  template <class V>
  static constexpr std::size_t begin(std::size_t lane) {
    return lane / kUnit<V> * kUnit<V>;
  }
  template <class V>
  static constexpr std::size_t place(std::size_t lane) {
    return lane % (kUnit<V> / 2);
  }
  template <class V>
  static constexpr bool is_of_second(std::size_t lane) {
    return lane % kUnit<V> >= kUnit<V> / 2;
  }
  template <class V>
  static constexpr std::size_t number_of(std::size_t lane) {
    return (is_of_second<V>(lane) ? kLanes<Lane<V>> / 2 : 0) + begin<V>(lane) / 2 + place<V>(lane);
  }

  template <std::size_t which, class V, std::size_t... L>
  static TENSOR_OPS_INLINE V every_other(const Block<V, 2>& block, std::index_sequence<L...>) {
    return __builtin_shufflevector(
        block.vector[0], block.vector[1],
        ((is_of_second<V>(L) ? sizeof...(L) : 0) + begin<V>(L) + 2 * place<V>(L) + which)...);
  }
  template <class V, std::size_t... L>
  static TENSOR_OPS_INLINE V by_number(V angles, std::index_sequence<L...>) {
    return __builtin_shufflevector(angles, angles, number_of<V>(L)...);
  }
  // From `from` on in each unit, of the first elements and of the second.
  template <std::size_t from, class V, std::size_t... L>
  static TENSOR_OPS_INLINE V in_turn(Pair<V> pair, std::index_sequence<L...>) {
    return __builtin_shufflevector(
        pair.hi, pair.lo, (begin<V>(L) + from + L % kUnit<V> / 2 + (L % 2 ? sizeof...(L) : 0))...);
  }
};

template <class Element, class Pairs>
struct Rotation {
  using T = typename Element::Storage;
  using C = typename Element::Compute;
  using V = Vector<C>;

  struct Row {
    const T *x, *cos, *sin;
    T* y;
  };
  static TENSOR_OPS_INLINE Row row_at(const Run& run, std::size_t r) {
    return {row_of<const T>(run, 0, r), row_of<const T>(run, 1, r), row_of<const T>(run, 2, r),
            row_of<T>(run, 3, r)};
  }

  // The pairs from first to last.
  static TENSOR_OPS_INLINE void rotate(Row row, std::size_t first, std::size_t last,
                                       std::size_t pairs) {
    std::size_t i = first;
#if TENSOR_OPS_HAS_FMA
    constexpr std::size_t lanes = kLanes<C>;
    for (; i + 2 * lanes <= last; i += 2 * lanes) rotate_block(row, i, pairs, Whole<2>{});
    for (; i + lanes <= last; i += lanes) rotate_block(row, i, pairs, Whole<1>{});
#endif
    if (i < last) rotate_rest(row, i, last, pairs);
  }

  template <class Extent>
  static TENSOR_OPS_INLINE void rotate_block(Row row, std::size_t i, std::size_t pairs,
                                             Extent extent) {
    const auto x = Pairs::template load_pairs<Element>(row.x, i, pairs, extent);
    const auto cos = Pairs::template load_angles<Element>(row.cos + i, extent);
    const auto sin = Pairs::template load_angles<Element>(row.sin + i, extent);
    PairBlock<Element, Extent> turned{
        map([](V a, V b, V cos, V sin) { return vector_difference(a, cos, b, sin); }, x.hi, x.lo,
            cos, sin),
        map([](V a, V b, V cos, V sin) { return vector_sum(b, cos, a, sin); }, x.hi, x.lo, cos,
            sin)};
    MagnitudeCheck<C> check;
    for (std::size_t u = 0; u < Extent::vectors; ++u) {
      check.include(turned.hi.vector[u]);
      check.include(turned.lo.vector[u]);
    }
    if (__builtin_expect(!check.at_most(kLargest), 0)) {
      // Copies, or the compiler would keep the originals in memory.
      const auto same = [](V vector) { return vector; };
      PairBlock<Element, Extent> mended{map(same, turned.hi), map(same, turned.lo)};
      mend(mended, {map(same, x.hi), map(same, x.lo)}, map(same, cos), map(same, sin));
      turned = {map(same, mended.hi), map(same, mended.lo)};
    }
    Pairs::template store_pairs<Element>(row.y, i, pairs, turned, extent);
  }

  // Products of two half-precision numbers are exact in float32 as they are.
  static TENSOR_OPS_INLINE V vector_sum(V a, V b, V c, V d) {
    const V cd = c * d;
    if constexpr (is_half<Element>) return fma(a, b, cd);
    return fma(a, b, cd) + fma(c, d, -cd);
  }
  static TENSOR_OPS_INLINE V vector_difference(V a, V b, V c, V d) {
    const V cd = c * d;
    if constexpr (is_half<Element>) return fma(a, b, -cd);
    return fma(a, b, -cd) - fma(c, d, -cd);
  }

  // The lanes that are not finite.
  template <std::size_t count>
  static __attribute__((noinline)) void mend(Pair<Block<V, count>>& turned,
                                             const Pair<Block<V, count>>& x,
                                             const Block<V, count>& cos,
                                             const Block<V, count>& sin) {
    for (std::size_t u = 0; u < count; ++u)
      for (std::size_t l = 0; l < kLanes<C>; ++l) {
        const C a = x.hi.vector[u][l], b = x.lo.vector[u][l];
        const C c = cos.vector[u][l], s = sin.vector[u][l];
        turned.hi.vector[u][l] = any_sum_of_products(a, c, -b, s);
        turned.lo.vector[u][l] = any_sum_of_products(b, c, a, s);
      }
  }

  static __attribute__((noinline)) void rotate_rest(Row row, std::size_t begin, std::size_t last,
                                                    std::size_t pairs) {
    const T *x = row.x, *cos = row.cos, *sin = row.sin;
    T* const y = row.y;
#pragma omp simd
    for (std::size_t i = begin; i < last; ++i) {
      const std::size_t first = Pairs::first(i, pairs), second = Pairs::second(i, pairs);
      const C a = Element::load(x[first]), b = Element::load(x[second]);
      const C c = Element::load(cos[i]), s = Element::load(sin[i]);
      y[first] = Element::store(any_sum_of_products(a, c, -b, s));
      y[second] = Element::store(any_sum_of_products(b, c, a, s));
    }
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
        rotate(row, 0, run.n / 2, run.n / 2);
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
    const std::size_t pairs = run.n / 2;
    Row row = row_at(run, 0);
    for (std::size_t r = 0; r < run.rows; ++r) {
      rotate(row, 0, pairs, pairs);
      row = {advanced(row.x, run.stride[0]), advanced(row.cos, run.stride[1]),
             advanced(row.sin, run.stride[2]), advanced(row.y, run.stride[3])};
    }
  }

 private:
  static void rotate_chunk(const RowChunk& chunk) {
    rotate(row_at(chunk.row, 0), chunk.begin / 2, chunk.end / 2, chunk.row.n / 2);
  }

  static constexpr C kLargest =
      sizeof(C) == sizeof(float) ? static_cast<C>(__FLT_MAX__) : static_cast<C>(__DBL_MAX__);

 public:
  static constexpr RowSteps steps{{{rotate_chunk, nullptr}}, 1};
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
              Cost{0.15, 0.14, 0.19, 0.31},
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
