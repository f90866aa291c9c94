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
  static TENSOR_OPS_INLINE void prefetch_pairs(const typename Element::Storage* x, std::size_t i,
                                               std::size_t pairs, Extent) {
    constexpr std::size_t bytes = Extent::vectors * sizeof(typename Element::Packed);
    prefetch(x + i, bytes);
    prefetch(x + pairs + i, bytes);
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
  static TENSOR_OPS_INLINE void prefetch_pairs(const typename Element::Storage* x, std::size_t i,
                                               std::size_t, Extent) {
    prefetch(x + 2 * i, 2 * Extent::vectors * sizeof(typename Element::Packed));
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
      store_pair<Element, Extent::streams>(y + 2 * (i + u * kLanesFor<Element>),
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
  template <class Element, bool streams>
  static TENSOR_OPS_INLINE void store_pair(typename Element::Storage* y,
                                           Pair<VectorFor<Element>> pair) {
    if constexpr (comes_in_pairs<Element>) {
      const auto packed = Element::narrow_pair(pair);
      if constexpr (streams)
        stream_vector(y, packed);
      else
        store_vector(y, packed);
    } else {
      constexpr std::size_t half = kUnit<VectorFor<Element>> / 2;
      const Block<VectorFor<Element>, 2> block{
          {in_turn<0>(pair, AllLanes<Element>()), in_turn<half>(pair, AllLanes<Element>())}};
      store<Element>(y, block, Whole<2, streams>{});
    }
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

  struct Rows {
    const T *x, *cos, *sin;
    T* y;
    std::ptrdiff_t x_stride, cos_stride, sin_stride, y_stride;  // bytes
    std::size_t count;
    std::size_t pairs;  // of each row
  };
  static TENSOR_OPS_INLINE Rows rows_at(const Run& run, std::size_t r, std::size_t count) {
    return {row_of<const T>(run, 0, r),
            row_of<const T>(run, 1, r),
            row_of<const T>(run, 2, r),
            row_of<T>(run, 3, r),
            run.stride[0],
            run.stride[1],
            run.stride[2],
            run.stride[3],
            count,
            run.n / 2};
  }

  // Rows that are in the first-level cache together.
  static constexpr std::ptrdiff_t kGroupBytes = 4096;

  // What is done beside the rotation of each block: nothing,
  struct Nothing {
    static constexpr bool streams = false;
    template <class Extent>
    TENSOR_OPS_INLINE void operator()(const T*, std::size_t, std::size_t, Extent) const {}
  };
  // or asking for the same block of the next group of rows,
  struct Asking {
    static constexpr bool streams = true;
    template <class Extent>
    TENSOR_OPS_INLINE void operator()(const T* x, std::size_t i, std::size_t pairs,
                                      Extent extent) const {
      Pairs::template prefetch_pairs<Element>(advanced(x, kGroupBytes), i, pairs, extent);
    }
  };
  // or that and streaming as many lines from a buffer.
  struct Draining {
    static constexpr bool streams = false;
    static constexpr std::size_t line = kLine / sizeof(T);
    const T* buffer;
    T* y;
    std::size_t done, ready;  // elements

    template <class Extent>
    TENSOR_OPS_INLINE void operator()(const T* x, std::size_t i, std::size_t pairs, Extent extent) {
      Asking()(x, i, pairs, extent);
      drain(2 * Extent::vectors * sizeof(typename Element::Packed) / kLine);
    }
    TENSOR_OPS_INLINE void drain(std::size_t lines) {
      for (; lines > 0 && done + line <= ready; --lines, done += line)
        stream_vectors(std::make_index_sequence<kLine / kVectorBytes>());
    }

   private:
    template <std::size_t... V>
    TENSOR_OPS_INLINE void stream_vectors(std::index_sequence<V...>) {
      constexpr std::size_t each = kVectorBytes / sizeof(T);
      (stream_vector(y + done + V * each, load_vector<Floats>(buffer + done + V * each)), ...);
    }
  };

  // All rows, together where they share their angles.
  template <class Beside>
  static TENSOR_OPS_INLINE void rotate_rows(Rows rows, Beside& beside) {
    if (rows.cos_stride == 0 && rows.sin_stride == 0) return rotate(rows, 0, rows.pairs, beside);
    const std::size_t count = rows.count;
    rows.count = 1;
    for (std::size_t r = 0; r < count; ++r, rows = rows_after(rows, 1))
      rotate(rows, 0, rows.pairs, beside);
  }
  static TENSOR_OPS_INLINE Rows rows_after(Rows rows, std::size_t count) {
    const auto r = static_cast<std::ptrdiff_t>(count);
    rows.x = advanced(rows.x, r * rows.x_stride);
    rows.cos = advanced(rows.cos, r * rows.cos_stride);
    rows.sin = advanced(rows.sin, r * rows.sin_stride);
    rows.y = advanced(rows.y, r * rows.y_stride);
    return rows;
  }

  // The pairs from first to last of rows that share their angles, which stay in registers.
  template <class Beside>
  static __attribute__((noinline)) void rotate(const Rows& rows, std::size_t first,
                                               std::size_t last, [[maybe_unused]] Beside& beside) {
    std::size_t i = first;
#if TENSOR_OPS_HAS_FMA
    constexpr std::size_t lanes = kLanes<C>;
    if constexpr (kVectorBytes == 64) {
      for (; i + 8 * lanes <= last; i += 8 * lanes) rotate_columns<8>(rows, i, beside);
      for (; i + 4 * lanes <= last; i += 4 * lanes) rotate_columns<4>(rows, i, beside);
    }
    for (; i + 2 * lanes <= last; i += 2 * lanes) rotate_columns<2>(rows, i, beside);
    Nothing nothing;
    for (; i + lanes <= last; i += lanes) rotate_columns<1>(rows, i, nothing);
#endif
    if (i < last) rotate_rest(rows, i, last);
  }

  // As many vectors of pairs of each row.
  template <std::size_t vectors, class Beside>
  static TENSOR_OPS_INLINE void rotate_columns(const Rows& rows, std::size_t i, Beside& beside) {
    constexpr std::size_t each = vectors == 8 ? 2 : vectors;  // what there are registers for
    constexpr Whole<each, Beside::streams> extent;
    Block<V, each> cos[vectors / each], sin[vectors / each];
    for (std::size_t b = 0; b < vectors / each; ++b) {
      cos[b] = Pairs::template load_angles<Element>(rows.cos + i + b * each * kLanes<C>, extent);
      sin[b] = Pairs::template load_angles<Element>(rows.sin + i + b * each * kLanes<C>, extent);
    }
    const T* x = rows.x;
    T* y = rows.y;
    for (std::size_t r = 0; r < rows.count; ++r) {
      for (std::size_t b = 0; b < vectors / each; ++b) {
        const std::size_t at = i + b * each * kLanes<C>;
        beside(x, at, rows.pairs, extent);
        rotate_block(x, y, at, rows.pairs, cos[b], sin[b], extent);
      }
      x = advanced(x, rows.x_stride);
      y = advanced(y, rows.y_stride);
    }
  }

  template <class Angles, class Extent>
  static TENSOR_OPS_INLINE void rotate_block(const T* from, T* to, std::size_t i, std::size_t pairs,
                                             const Angles& cos, const Angles& sin, Extent extent) {
    const auto x = Pairs::template load_pairs<Element>(from, i, pairs, extent);
    PairBlock<Element, Extent> turned{
        map([](V a, V b, V cos, V sin) { return vector_difference(a, cos, b, sin); }, x.hi, x.lo,
            cos, sin),
        map([](V a, V b, V cos, V sin) { return vector_sum(b, cos, a, sin); }, x.hi, x.lo, cos,
            sin)};
    // Not finite if any of them is not, and sometimes where they all are.
    V sum = turned.hi.vector[0] + turned.lo.vector[0];
    for (std::size_t u = 1; u < Extent::vectors; ++u)
      sum += turned.hi.vector[u] + turned.lo.vector[u];
    MagnitudeCheck<C> check;
    check.include(sum);
    if (__builtin_expect(!check.at_most(kLargest), 0)) {
      // Copies, or the compiler would keep the originals in memory.
      const auto same = [](V vector) { return vector; };
      PairBlock<Element, Extent> mended{map(same, turned.hi), map(same, turned.lo)};
      mend(mended, {map(same, x.hi), map(same, x.lo)}, map(same, cos), map(same, sin));
      turned = {map(same, mended.hi), map(same, mended.lo)};
    }
    Pairs::template store_pairs<Element>(to, i, pairs, turned, extent);
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

  static __attribute__((noinline)) void rotate_rest(const Rows& rows, std::size_t begin,
                                                    std::size_t last) {
    const T *x = rows.x, *const cos = rows.cos, *const sin = rows.sin;
    T* y = rows.y;
    for (std::size_t r = 0; r < rows.count; ++r) {
#pragma omp simd
      for (std::size_t i = begin; i < last; ++i) {
        const std::size_t first = Pairs::first(i, rows.pairs);
        const std::size_t second = Pairs::second(i, rows.pairs);
        const C a = Element::load(x[first]), b = Element::load(x[second]);
        const C c = Element::load(cos[i]), s = Element::load(sin[i]);
        y[first] = Element::store(any_sum_of_products(a, c, -b, s));
        y[second] = Element::store(any_sum_of_products(b, c, a, s));
      }
      x = advanced(x, rows.x_stride);
      y = advanced(y, rows.y_stride);
    }
  }

  // Rows that follow one another in memory: straight where they are of whole lines, or else by way
  // of a buffer, from which the lines of one group are streamed while the next is computed.
  static constexpr std::ptrdiff_t kBufferBytes = 4 * kGroupBytes;

  static void rotate_streaming(const Rows& rows) {
    const bool are_lines = reinterpret_cast<std::uintptr_t>(rows.y) % kLine == 0 &&
                           rows.pairs * sizeof(T) % kLine == 0;
    if (are_lines) {
      Asking asking;
      return rotate_rows(rows, asking);
    }
    const std::size_t n = 2 * rows.pairs, total = rows.count * n;
    // Ordinary stores to the first and the last line, which are shared, must not have to wait.
    __builtin_prefetch(rows.y, 1, 2);
    __builtin_prefetch(rows.y + total, 1, 2);
    alignas(kLine) T buffer[kBufferBytes / sizeof(T)];
    const std::size_t first = distance_to_line<Element>(rows.y);
    Draining draining{buffer, rows.y, first, 0};
    Rows group = rows;
    group.y = buffer;
    for (std::size_t left = rows.count; left > 0; left -= group.count) {
      const std::size_t most = kGroupBytes / (n * sizeof(T));
      group.count = left < most ? left : most;
      rotate_rows(group, draining);
      draining.ready += group.count * n;
      group = rows_after(group, group.count);
    }
    draining.drain(total);
    for (std::size_t i = 0; i < first; ++i) rows.y[i] = buffer[i];
    for (std::size_t i = draining.done; i < total; ++i) rows.y[i] = buffer[i];
  }

  static void run(const Run& run) {
    const auto row_bytes = static_cast<std::ptrdiff_t>(run.n * sizeof(T));
    const bool streams = run.streams && run.stride[0] == row_bytes && run.stride[3] == row_bytes &&
                         row_bytes <= kGroupBytes && run.n * sizeof(T) >= 2 * kLine;
    const std::size_t group =
        row_bytes < kBufferBytes ? static_cast<std::size_t>(kBufferBytes / row_bytes) : 1;
    for (std::size_t r = 0; r < run.rows; r += group) {
      const Rows rows = rows_at(run, r, run.rows - r < group ? run.rows - r : group);
      Nothing nothing;
      if (streams)
        rotate_streaming(rows);
      else
        rotate_rows(rows, nothing);
    }
  }

 private:
  static void rotate_chunk(const RowChunk& chunk) {
    Nothing nothing;
    rotate(rows_at(chunk.row, 0, 1), chunk.begin / 2, chunk.end / 2, nothing);
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
