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
#if TENSOR_OPS_HAS_FMA
  const C cd = c * d;
  return fma(a, b, cd) - fma(-c, d, cd);
#else
  const Pair<C> ab = exact_product(a, b), cd = exact_product(c, d);
  const Pair<C> total = exact_sum(ab.hi, cd.hi);
  return total.hi + (total.lo + (ab.lo + cd.lo));
#endif
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

// What was computed where that is finite, and else the formula's value.
template <class C>
TENSOR_OPS_INLINE C mended(C value, C a, C b, C c, C d) {
  return is_finite(value) ? value : any_sum_of_products(a, b, c, d);
}

// Two blocks of vectors: the elements of as many vectors of pairs.
template <class Element, class Extent>
using PairBlock = Pair<Block<VectorFor<Element>, Extent::vectors>>;

// Products of two half-precision numbers are exact in float32. A float32 sine is split in its
// leading digits, whose products with elements are exact too, and the rest: then a sum that cancels
// is exact until the rest is added.
template <class Element, class Angle>
constexpr bool splits_sines = is_half<Element> && !is_half<Angle>;
template <class Element, class Angle>
using SineOf =
    std::conditional_t<splits_sines<Element, Angle>, Pair<VectorFor<Element>>, VectorFor<Element>>;

// The bits of a float32 that leave it 24 digits less those of an element.
template <class Element>
constexpr std::uint32_t kLeadingDigits =
    std::is_same_v<Element, BFloat16> ? 0xFFFFFF00u : 0xFFFFF800u;

// The rest has the sign of the sine also where it is 0: its product leaves a sum that is -0. That
// of a sine that is not finite is 0, so that the parts add up to any sine.
template <class Element, class Angle, std::size_t count>
TENSOR_OPS_INLINE auto as_sines(const Block<VectorFor<Element>, count>& values) {
  if constexpr (splits_sines<Element, Angle>) {
    Block<SineOf<Element, Angle>, count> sines;
    for (std::size_t u = 0; u < count; ++u) {
      const Floats value = values.vector[u];
      const BitsOf<Floats> sign = bits(value) & 0x80000000u;
      const Floats leading = bit_cast<Floats>(bits(value) & kLeadingDigits<Element>);
      const auto is_ordinary = magnitude_of(value) <= __FLT_MAX__;
      sines.vector[u].hi = is_ordinary ? leading : value;
      const Floats rest = is_ordinary ? value - leading : Floats{};
      sines.vector[u].lo = bit_cast<Floats>(bits(rest) | sign);
    }
    return sines;
  } else {
    return values;
  }
}
template <class V>
TENSOR_OPS_INLINE V value_of(V sine) {
  return sine;
}
template <class V>
TENSOR_OPS_INLINE V value_of(Pair<V> sine) {
  return sine.hi + sine.lo;
}

// a * b + c * sine and a * b - c * sine, a and c being elements.
template <class Element, class V>
TENSOR_OPS_INLINE V vector_sum(V a, V b, V c, V sine) {
  const V product = c * sine;
  if constexpr (is_half<Element>) return fma(a, b, product);
  return fma(a, b, product) - fma(-c, sine, product);
}
template <class Element, class V>
TENSOR_OPS_INLINE V vector_sum(V a, V b, V c, Pair<V> sine) {
  return fma(c, sine.lo, fma(a, b, c * sine.hi));
}
template <class Element, class V>
TENSOR_OPS_INLINE V vector_difference(V a, V b, V c, V sine) {
  const V product = c * sine;
  if constexpr (is_half<Element>) return fma(a, b, -product);
  return fma(a, b, -product) - fma(c, sine, -product);
}
template <class Element, class V>
TENSOR_OPS_INLINE V vector_difference(V a, V b, V c, Pair<V> sine) {
  return fma(-c, sine.lo, fma(a, b, -(c * sine.hi)));
}

// How pairs lie in a row and in registers. turn() leaves the formula's value where that is finite;
// mend() gives it in the other lanes too.

// Vectors of first elements and vectors of second ones.
template <class Element, class Angle>
struct Apart {
  using V = VectorFor<Element>;
  using Sine = SineOf<Element, Angle>;
  static constexpr std::size_t angles_each = 1;  // vectors of cosines for a vector of pairs

  template <class Extent>
  static TENSOR_OPS_INLINE auto turn(const PairBlock<Element, Extent>& x,
                                     const Block<V, Extent::vectors>& cos,
                                     const Block<Sine, Extent::vectors>& sin, Extent) {
    return PairBlock<Element, Extent>{
        map([](V a, V b, V c, Sine s) { return vector_difference<Element>(a, c, b, s); }, x.hi,
            x.lo, cos, sin),
        map([](V a, V b, V c, Sine s) { return vector_sum<Element>(b, c, a, s); }, x.hi, x.lo, cos,
            sin)};
  }
  template <std::size_t count>
  static __attribute__((noinline)) void mend(Pair<Block<V, count>>& turned,
                                             const Pair<Block<V, count>>& x,
                                             const Block<V, count>& cos,
                                             const Block<Sine, count>& sin) {
    for (std::size_t u = 0; u < count; ++u)
      for (std::size_t l = 0; l < kLanesFor<Element>; ++l) {
        const auto a = x.hi.vector[u][l], b = x.lo.vector[u][l];
        const auto c = cos.vector[u][l], s = value_of(sin.vector[u])[l];
        turned.hi.vector[u][l] = mended(turned.hi.vector[u][l], a, c, -b, s);
        turned.lo.vector[u][l] = mended(turned.lo.vector[u][l], b, c, a, s);
      }
  }
};

// The pairs of a row are x[i], x[n / 2 + i].
template <class Element, class Angle>
struct HalfSplit : Apart<Element, Angle> {
  using T = typename Element::Storage;
  using A = typename Angle::Storage;

  static TENSOR_OPS_INLINE std::size_t first(std::size_t i, std::size_t) { return i; }
  static TENSOR_OPS_INLINE std::size_t second(std::size_t i, std::size_t pairs) {
    return pairs + i;
  }
  template <class Extent>
  static TENSOR_OPS_INLINE PairBlock<Element, Extent> load_pairs(const T* x, std::size_t i,
                                                                 std::size_t pairs, Extent extent) {
    return {load_unordered<Element>(x + i, extent), load_unordered<Element>(x + pairs + i, extent)};
  }
  template <class Extent>
  static TENSOR_OPS_INLINE void prefetch_pairs(const T* x, std::size_t i, std::size_t pairs,
                                               Extent) {
    constexpr std::size_t bytes = Extent::vectors * sizeof(typename Element::Packed);
    prefetch(x + i, bytes);
    prefetch(x + pairs + i, bytes);
  }
  template <class Extent>
  static TENSOR_OPS_INLINE auto load_cos(const A* cos, Extent extent) {
    return load_unordered<Angle, Element>(cos, extent);
  }
  template <class Extent>
  static TENSOR_OPS_INLINE auto load_sin(const A* sin, Extent extent) {
    return as_sines<Element, Angle>(load_unordered<Angle, Element>(sin, extent));
  }
  template <class Extent>
  static TENSOR_OPS_INLINE void store_pairs(T* y, std::size_t i, std::size_t pairs,
                                            const PairBlock<Element, Extent>& pair, Extent extent) {
    store_unordered<Element>(y + i, pair.hi, extent);
    store_unordered<Element>(y + pairs + i, pair.lo, extent);
  }
};

// The pairs of a row are x[2 i], x[2 i + 1].
template <class Element>
struct Interleaved {
  using T = typename Element::Storage;

  static TENSOR_OPS_INLINE std::size_t first(std::size_t i, std::size_t) { return 2 * i; }
  static TENSOR_OPS_INLINE std::size_t second(std::size_t i, std::size_t) { return 2 * i + 1; }
  template <class Extent>
  static TENSOR_OPS_INLINE void prefetch_pairs(const T* x, std::size_t i, std::size_t, Extent) {
    prefetch(x + 2 * i, 2 * Extent::vectors * sizeof(typename Element::Packed));
  }
};

// Of a dtype that widens to pairs anyway.
template <class Element, class Angle>
struct InterleavedApart : Interleaved<Element>, Apart<Element, Angle> {
  using T = typename Element::Storage;
  using A = typename Angle::Storage;

  template <class Extent>
  static TENSOR_OPS_INLINE PairBlock<Element, Extent> load_pairs(const T* x, std::size_t i,
                                                                 std::size_t, Extent) {
    PairBlock<Element, Extent> blocks;
    for (std::size_t u = 0; u < Extent::vectors; ++u) {
      const auto pair = Element::widen_pair(
          load_vector<typename Element::PackedPair>(x + 2 * (i + u * kLanesFor<Element>)));
      blocks.hi.vector[u] = pair.hi;
      blocks.lo.vector[u] = pair.lo;
    }
    return blocks;
  }
  template <class Extent>
  static TENSOR_OPS_INLINE auto load_cos(const A* cos, Extent extent) {
    return load<Angle>(cos, extent);
  }
  template <class Extent>
  static TENSOR_OPS_INLINE auto load_sin(const A* sin, Extent extent) {
    return as_sines<Element, Angle>(load<Angle>(sin, extent));
  }
  template <class Extent>
  static TENSOR_OPS_INLINE void store_pairs(T* y, std::size_t i, std::size_t,
                                            const PairBlock<Element, Extent>& pair, Extent) {
    for (std::size_t u = 0; u < Extent::vectors; ++u) {
      const auto packed = Element::narrow_pair({pair.hi.vector[u], pair.lo.vector[u]});
      T* const to = y + 2 * (i + u * kLanesFor<Element>);
      if constexpr (Extent::streams)
        stream_vector(to, packed);
      else
        store_vector(to, packed);
    }
  }
};

// Vectors of pairs as they lie in memory. Each element is multiplied by its cosine, and its
// neighbour by its sine, of which that of a first element is negative.
template <class Element, class Angle>
struct Neighbours : Interleaved<Element> {
  using T = typename Element::Storage;
  using A = typename Angle::Storage;
  using V = VectorFor<Element>;
  using Sine = SineOf<Element, Angle>;
  static constexpr std::size_t lanes = kLanesFor<Element>;
  static constexpr std::size_t angles_each = 2;

  template <class Extent>
  static TENSOR_OPS_INLINE PairBlock<Element, Extent> load_pairs(const T* x, std::size_t i,
                                                                 std::size_t, Extent) {
    PairBlock<Element, Extent> blocks;
    for (std::size_t u = 0; u < Extent::vectors; ++u) {
      blocks.hi.vector[u] = vector_at<Element>(x + 2 * (i + u * lanes));
      blocks.lo.vector[u] = vector_at<Element>(x + 2 * (i + u * lanes) + lanes);
    }
    return blocks;
  }
  template <class Extent>
  static TENSOR_OPS_INLINE auto load_cos(const A* cos, Extent) {
    Block<V, 2 * Extent::vectors> block;
    for (std::size_t u = 0; u < Extent::vectors; ++u) {
      const V angles = vector_at<Angle>(cos + u * lanes);
      block.vector[2 * u] = twice<0>(angles, Lanes());
      block.vector[2 * u + 1] = twice<lanes / 2>(angles, Lanes());
    }
    return block;
  }
  template <class Extent>
  static TENSOR_OPS_INLINE auto load_sin(const A* sin, Extent extent) {
    auto block = load_cos(sin, extent);
    for (auto& vector : block.vector) vector *= signs(Lanes());
    return as_sines<Element, Angle>(block);
  }
  template <class Extent>
  static TENSOR_OPS_INLINE auto turn(const PairBlock<Element, Extent>& x,
                                     const Block<V, 2 * Extent::vectors>& cos,
                                     const Block<Sine, 2 * Extent::vectors>& sin, Extent) {
    PairBlock<Element, Extent> turned;
    for (std::size_t u = 0; u < Extent::vectors; ++u) {
      turned.hi.vector[u] = turn_one(x.hi.vector[u], cos.vector[2 * u], sin.vector[2 * u]);
      turned.lo.vector[u] = turn_one(x.lo.vector[u], cos.vector[2 * u + 1], sin.vector[2 * u + 1]);
    }
    return turned;
  }
  template <std::size_t count>
  static __attribute__((noinline)) void mend(Pair<Block<V, count>>& turned,
                                             const Pair<Block<V, count>>& x,
                                             const Block<V, 2 * count>& cos,
                                             const Block<Sine, 2 * count>& sin) {
    for (std::size_t u = 0; u < count; ++u)
      for (std::size_t l = 0; l < lanes; ++l) {
        const V hi = x.hi.vector[u], lo = x.lo.vector[u];
        turned.hi.vector[u][l] = mended(turned.hi.vector[u][l], hi[l], cos.vector[2 * u][l],
                                        hi[l ^ 1], value_of(sin.vector[2 * u])[l]);
        turned.lo.vector[u][l] = mended(turned.lo.vector[u][l], lo[l], cos.vector[2 * u + 1][l],
                                        lo[l ^ 1], value_of(sin.vector[2 * u + 1])[l]);
      }
  }
  template <class Extent>
  static TENSOR_OPS_INLINE void store_pairs(T* y, std::size_t i, std::size_t,
                                            const PairBlock<Element, Extent>& pair, Extent) {
    for (std::size_t u = 0; u < Extent::vectors; ++u) {
      const Block<V, 2> both{{pair.hi.vector[u], pair.lo.vector[u]}};
      store<Element>(y + 2 * (i + u * lanes), both, Whole<2, Extent::streams>{});
    }
  }

 private:
  using Lanes = std::make_index_sequence<lanes>;

  template <class E>
  static TENSOR_OPS_INLINE V vector_at(const typename E::Storage* from) {
    return load<E>(from, Whole<1>{}).vector[0];
  }
  static TENSOR_OPS_INLINE V turn_one(V x, V cos, Sine sin) {
    return vector_sum<Element>(x, cos, swapped(x, Lanes()), sin);
  }
  template <std::size_t... L>
  static TENSOR_OPS_INLINE V swapped(V x, std::index_sequence<L...>) {
    return __builtin_shufflevector(x, x, (L ^ 1)...);
  }
  template <std::size_t from, std::size_t... L>
  static TENSOR_OPS_INLINE V twice(V angles, std::index_sequence<L...>) {
    return __builtin_shufflevector(angles, angles, (from + L / 2)...);
  }
  template <std::size_t... L>
  static TENSOR_OPS_INLINE V signs(std::index_sequence<L...>) {
    return V{(L % 2 ? 1 : -1)...};
  }
};

template <class Element, class Angle, class Pairs>
struct Rotation {
  using T = typename Element::Storage;
  using A = typename Angle::Storage;
  using C = typename Element::Compute;
  using V = Vector<C>;

  struct Rows {
    const T* x;
    const A *cos, *sin;
    T* y;
    std::ptrdiff_t x_stride, cos_stride, sin_stride, y_stride;  // bytes
    std::size_t count;
    std::size_t pairs;  // of each row
  };
  static TENSOR_OPS_INLINE Rows rows_at(const Run& run, std::size_t r, std::size_t count) {
    return {row_of<const T>(run, 0, r),
            row_of<const A>(run, 1, r),
            row_of<const A>(run, 2, r),
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
      Pairs::prefetch_pairs(advanced(x, kGroupBytes), i, pairs, extent);
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

  // Vectors of pairs whose angles there are registers for, and how many of them are turned at a
  // time in the registers that are left.
  // Split sines take more.
  static constexpr std::size_t kMostAngles =
      (kVectorBytes == 64 ? (splits_sines<Element, Angle> ? 4 : 8) : 2) / Pairs::angles_each;
  static constexpr std::size_t at_a_time(std::size_t vectors) {
    const std::size_t most = kVectorBytes == 64 ? 4 : 2;
    return vectors * Pairs::angles_each > most ? most / 2 : vectors;
  }

  // The pairs from first to last of rows that share their angles, which stay in registers.
  template <class Beside>
  static __attribute__((noinline)) void rotate(const Rows& rows, std::size_t first,
                                               std::size_t last, [[maybe_unused]] Beside& beside) {
    std::size_t i = first;
#if TENSOR_OPS_HAS_FMA
    constexpr std::size_t lanes = kLanes<C>;
    if constexpr (kMostAngles >= 8)
      for (; i + 8 * lanes <= last; i += 8 * lanes) rotate_columns<8>(rows, i, beside);
    if constexpr (kMostAngles >= 4)
      for (; i + 4 * lanes <= last; i += 4 * lanes) rotate_columns<4>(rows, i, beside);
    for (; i + 2 * lanes <= last; i += 2 * lanes) rotate_columns<2>(rows, i, beside);
    Nothing nothing;
    for (; i + lanes <= last; i += lanes) rotate_columns<1>(rows, i, nothing);
#endif
    if (i < last) rotate_rest(rows, i, last);
  }

  // Whether first results of pairs that are finite have second ones that need no mending. Both
  // elements are finite then, and a second result is as well, or rounds to infinity like what the
  // formula gives, as long as no product overflows: where angles are of a limited magnitude, which
  // pays to find out if many rows share them.
  static constexpr std::size_t kFewestSharing = 4;
  static constexpr C kLargestAngle = static_cast<C>(comes_in_pairs<Element> ? 1 : 0x1p100);
  template <std::size_t count, std::size_t angles>
  static TENSOR_OPS_INLINE bool first_tells(
      const Block<V, angles> (&cos)[count],
      const Block<SineOf<Element, Angle>, angles> (&sin)[count]) {
    MagnitudeCheck<C> check;
    for (std::size_t b = 0; b < count; ++b)
      for (std::size_t u = 0; u < angles; ++u) {
        check.include(cos[b].vector[u]);
        check.include(value_of(sin[b].vector[u]));
      }
    return check.at_most(kLargestAngle);
  }

  // As many vectors of pairs of each row.
  template <std::size_t vectors, class Beside>
  static TENSOR_OPS_INLINE void rotate_columns(const Rows& rows, std::size_t i, Beside& beside) {
    constexpr std::size_t each = at_a_time(vectors);
    constexpr Whole<each, Beside::streams> extent;
    Block<V, each * Pairs::angles_each> cos[vectors / each];
    Block<SineOf<Element, Angle>, each * Pairs::angles_each> sin[vectors / each];
    for (std::size_t b = 0; b < vectors / each; ++b) {
      cos[b] = Pairs::load_cos(rows.cos + i + b * each * kLanes<C>, extent);
      sin[b] = Pairs::load_sin(rows.sin + i + b * each * kLanes<C>, extent);
    }
    const auto rotate_blocks = [&](auto checked) TENSOR_OPS_INLINE_LAMBDA {
      const T* x = rows.x;
      T* y = rows.y;
      for (std::size_t r = 0; r < rows.count; ++r) {
        for (std::size_t b = 0; b < vectors / each; ++b) {
          const std::size_t at = i + b * each * kLanes<C>;
          beside(x, at, rows.pairs, extent);
          rotate_block(x, y, at, rows.pairs, cos[b], sin[b], extent, checked);
        }
        x = advanced(x, rows.x_stride);
        y = advanced(y, rows.y_stride);
      }
    };
    if constexpr (is_half<Element> && Pairs::angles_each == 1)
      if (rows.count >= kFewestSharing && first_tells(cos, sin)) return rotate_blocks(First());
    rotate_blocks(Both());
  }

  // The results of a block's pairs that it is checked by.
  struct Both {
    template <class Pair>
    TENSOR_OPS_INLINE V operator()(const Pair& turned, std::size_t u) const {
      return turned.hi.vector[u] + turned.lo.vector[u];
    }
  };
  struct First {
    template <class Pair>
    TENSOR_OPS_INLINE V operator()(const Pair& turned, std::size_t u) const {
      return turned.hi.vector[u];
    }
  };

  template <class Cosines, class Sines, class Extent, class Checked>
  static TENSOR_OPS_INLINE void rotate_block(const T* from, T* to, std::size_t i, std::size_t pairs,
                                             const Cosines& cos, const Sines& sin, Extent extent,
                                             Checked checked) {
    const auto x = Pairs::load_pairs(from, i, pairs, extent);
    auto turned = Pairs::turn(x, cos, sin, extent);
    // Not finite if any of them is not, and sometimes where they all are.
    V sum = checked(turned, 0);
    for (std::size_t u = 1; u < Extent::vectors; ++u) sum += checked(turned, u);
    MagnitudeCheck<C> check;
    check.include(sum);
    if (__builtin_expect(!check.at_most(kLargest), 0)) {
      // Copies, or the compiler would keep the originals in memory.
      const auto same = [](auto vector) { return vector; };
      PairBlock<Element, Extent> mended{map(same, turned.hi), map(same, turned.lo)};
      Pairs::mend(mended, {map(same, x.hi), map(same, x.lo)}, map(same, cos), map(same, sin));
      turned = {map(same, mended.hi), map(same, mended.lo)};
    }
    Pairs::store_pairs(to, i, pairs, turned, extent);
  }

  static __attribute__((noinline)) void rotate_rest(const Rows& rows, std::size_t begin,
                                                    std::size_t last) {
    const T* x = rows.x;
    const A *const cos = rows.cos, *const sin = rows.sin;
    T* y = rows.y;
    for (std::size_t r = 0; r < rows.count; ++r) {
#pragma omp simd
      for (std::size_t i = begin; i < last; ++i) {
        const std::size_t first = Pairs::first(i, rows.pairs);
        const std::size_t second = Pairs::second(i, rows.pairs);
        const C a = Element::load(x[first]), b = Element::load(x[second]);
        const C c = Angle::load(cos[i]), s = Angle::load(sin[i]);
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

template <class Element, class Angle>
using HalfSplitRotation = Rotation<Element, Angle, HalfSplit<Element, Angle>>;
template <class Element, class Angle>
using InterleavedRotation =
    Rotation<Element, Angle,
             std::conditional_t<comes_in_pairs<Element>, InterleavedApart<Element, Angle>,
                                Neighbours<Element, Angle>>>;

}  // namespace

EXPORT_KERNELS(rope, each_dtype_and_parameters<HalfSplitRotation>(),
               each_dtype_and_parameters<InterleavedRotation>())

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {

DECLARE_OP(
    rope, nanoseconds(0.15, 0.14, 0.19, 0.31),
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

#endif
