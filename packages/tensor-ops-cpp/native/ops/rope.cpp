// rope: rotary position embedding, the rotation of pairs of elements of each row.
#include "kernels/rows.h"
#include "op.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// a * b + c * d without cancellation (Kahan): at most 1.5 ULP. By the formula in double where that
// is not finite, as where a product overflows or is infinite.
template <class C>
TENSOR_OPS_INLINE C sum_of_products(C a, C b, C c, C d) {
#if TENSOR_OPS_HAS_FMA
  const C cd = c * d;
  const C value = fma(a, b, cd) - fma(-c, d, cd);
#else
  const Pair<C> ab = exact_product(a, b), cd = exact_product(c, d);
  const Pair<C> total = exact_sum(ab.hi, cd.hi);
  const C value = total.hi + (total.lo + (ab.lo + cd.lo));
#endif
  const double formula = static_cast<double>(a) * static_cast<double>(b) +
                         static_cast<double>(c) * static_cast<double>(d);
  // In double, products of two float32 numbers are exact.
  constexpr bool is_exact = !TENSOR_OPS_HAS_FMA && sizeof(C) == sizeof(float);
  return !is_exact && is_finite(value) ? value : static_cast<C>(formula);
}

// Products of two half-precision numbers are exact in float32. A float32 sine beside half-precision
// elements is split in its leading digits, whose products with elements are exact too, and the
// rest: then a sum that cancels is exact until the rest is added.
template <class Element, class Angle>
constexpr bool splits_sines = is_half<Element> && !is_half<Angle>;

// The rest of a split sine has the sign of the sine even if it is 0, so that its product leaves a
// sum that is -0 unchanged. The rest of a sine that is not finite is 0, so that the two parts add
// up to any sine.
template <class Element, class Angle, class V>
TENSOR_OPS_INLINE auto as_sine(V value) {
  if constexpr (!splits_sines<Element, Angle>) {
    return value;
  } else {
    // The 24 digits of a float32, less those of an element.
    constexpr std::uint32_t digits = std::is_same_v<Element, BFloat16> ? 0xFFFFFF00u : 0xFFFFF800u;
    const auto is_ordinary = magnitude_of(value) <= __FLT_MAX__;
    const V leading = bit_cast<V>(bits(value) & digits);
    const V rest = is_ordinary ? value - leading : V{};
    const BitsOf<V> sign = bits(value) & 0x80000000u;
    return Pair<V>{is_ordinary ? leading : value, bit_cast<V>(bits(rest) | sign)};
  }
}
template <class V, class Sine>
TENSOR_OPS_INLINE V value_of(const Sine& sine) {
  if constexpr (std::is_same_v<Sine, V>)
    return sine;
  else
    return sine.hi + sine.lo;
}

// a * b + c * sine, or a * b - c * sine, where a and c are elements.
template <class Element, bool subtracts, class V>
TENSOR_OPS_INLINE V vector_sum(V a, V b, V c, V sine) {
  const V product = c * sine, term = subtracts ? -product : product;
  if constexpr (is_half<Element>) return fma(a, b, term);
  return fma(a, b, term) - fma(subtracts ? c : -c, sine, term);
}
template <class Element, bool subtracts, class V>
TENSOR_OPS_INLINE V vector_sum(V a, V b, V c, Pair<V> sine) {
  const V product = c * sine.hi;
  return fma(subtracts ? -c : c, sine.lo, fma(a, b, subtracts ? -product : product));
}

// The order of lanes that exchanges neighbours, that repeats each of the lanes from `from` on, and
// a vector of -1 and 1 in turn.
template <class V, std::size_t... L>
TENSOR_OPS_INLINE V swapped(V x, std::index_sequence<L...>) {
  return __builtin_shufflevector(x, x, (L ^ 1)...);
}
template <std::size_t from, class V, std::size_t... L>
TENSOR_OPS_INLINE V repeated(V x, std::index_sequence<L...>) {
  return __builtin_shufflevector(x, x, (from + L / 2)...);
}
template <class V, std::size_t... L>
TENSOR_OPS_INLINE V alternating_signs(std::index_sequence<L...>) {
  return V{(L % 2 ? 1 : -1)...};
}

// The pairs of a row are x[2 i], x[2 i + 1] where `interleaved`, and else x[i], x[n / 2 + i].
template <class Element, class Angle, bool interleaved>
struct Rotation {
  using T = typename Element::Storage;
  using A = typename Angle::Storage;
  using C = typename Element::Compute;
  using V = Vector<C>;
  using Sine = decltype(as_sine<Element, Angle>(V()));

  // Rows that share their angles.
  struct Rows {
    const T* x;
    const A *cos, *sin;
    T* y;
    std::ptrdiff_t x_stride, y_stride;  // bytes
    std::size_t count;
    std::size_t pairs;  // of each row
  };

  // Rows that are streamed are contiguous and of whole lines.
  template <bool streams>
  static __attribute__((noinline)) void rotate(const Rows& rows) {
    std::size_t i = 0;
#if TENSOR_OPS_HAS_FMA
    i = rotate_by<streams, kMostVectors>(rows, i);
#endif
    if (i < rows.pairs) rotate_rest(rows, i);
  }

  static void run(const Run& run) {
    const auto row_bytes = static_cast<std::ptrdiff_t>(run.n * sizeof(T));
    const bool streams = run.streams && run.stride[0] == row_bytes && run.stride[3] == row_bytes &&
                         row_bytes <= kAheadBytes && run.n * sizeof(T) >= 2 * kLine;
    // Streamed rows that are not of whole lines go by way of a buffer.
    const bool are_lines = reinterpret_cast<std::uintptr_t>(run.data[3]) % kLine == 0 &&
                           run.n / 2 * sizeof(T) % kLine == 0;
    const bool are_buffered = streams && !are_lines;
    alignas(kLine) T buffer[kAheadBytes / sizeof(T)];
    const std::ptrdiff_t group_bytes = are_buffered ? kAheadBytes : kGroupBytes;
    const std::size_t group =
        row_bytes < group_bytes ? static_cast<std::size_t>(group_bytes / row_bytes) : 1;
    const bool share_angles = run.stride[1] == 0 && run.stride[2] == 0;
    for (std::size_t r = 0; r < run.rows; r += group) {
      const std::size_t count = run.rows - r < group ? run.rows - r : group;
      const std::size_t step = share_angles ? count : 1;
      for (std::size_t k = 0; k < count; k += step) {
        const Rows rows{row_of<const T>(run, 0, r + k),
                        row_of<const A>(run, 1, r + k),
                        row_of<const A>(run, 2, r + k),
                        are_buffered ? buffer + k * run.n : row_of<T>(run, 3, r + k),
                        run.stride[0],
                        run.stride[3],
                        step,
                        run.n / 2};
        if (streams && are_lines)
          rotate<true>(rows);
        else
          rotate<false>(rows);
      }
      if (are_buffered)
        copy_row<Element>(true, count * run.n, row_of<T>(run, 3, r), buffer,
                          row_of<const T>(run, 0, r + count));
    }
  }

 private:
  // Rows that stay in the first-level cache while their columns are turned one after another.
  static constexpr std::ptrdiff_t kGroupBytes = 16384;
  // The elements of streamed rows are prefetched so far ahead.
  static constexpr std::ptrdiff_t kAheadBytes = 4096;

  // In a block, vectors of first elements and of second ones take turns, and the same angles serve
  // both, unless interleaved elements are cheaper to load in the order of memory: then neighbouring
  // lanes are pairs, angles are repeated, and the sines of first elements are negative.
  static constexpr bool are_apart = !interleaved || comes_in_pairs<Element>;
  static constexpr std::size_t kAngles = are_apart ? 1 : 2;  // vectors, for a vector of pairs
  using Lanes = std::make_index_sequence<kLanes<C>>;

  template <std::size_t count, bool streams>
  static TENSOR_OPS_INLINE Block<V, 2 * count> load_pairs(const T* x, std::size_t i,
                                                          std::size_t pairs,
                                                          Whole<count, streams> extent) {
    if constexpr (streams) {
      constexpr std::size_t bytes = count * sizeof(typename Element::Packed);
      prefetch(advanced(x, kAheadBytes) + (interleaved ? 2 * i : i),
               interleaved ? 2 * bytes : bytes);
      if (!interleaved) prefetch(advanced(x, kAheadBytes) + pairs + i, bytes);
    }
    if constexpr (interleaved) return load_unordered<Element>(x + 2 * i, Whole<2 * count>());
    const auto first = load_unordered<Element>(x + i, extent);
    const auto second = load_unordered<Element>(x + pairs + i, extent);
    Block<V, 2 * count> block;
    for (std::size_t u = 0; u < count; ++u) {
      block.vector[2 * u] = first.vector[u];
      block.vector[2 * u + 1] = second.vector[u];
    }
    return block;
  }
  template <std::size_t count, bool streams>
  static TENSOR_OPS_INLINE void store_pairs(T* y, std::size_t i, std::size_t pairs,
                                            const Block<V, 2 * count>& block,
                                            Whole<count, streams> extent) {
    if constexpr (interleaved) {
      store_unordered<Element>(y + 2 * i, block, Whole<2 * count, streams>());
    } else {
      Block<V, count> first, second;
      for (std::size_t u = 0; u < count; ++u) {
        first.vector[u] = block.vector[2 * u];
        second.vector[u] = block.vector[2 * u + 1];
      }
      store_unordered<Element>(y + i, first, extent);
      store_unordered<Element>(y + pairs + i, second, extent);
    }
  }
  template <class Extent>
  static TENSOR_OPS_INLINE auto load_angles(const A* from, Extent extent) {
    if constexpr (!interleaved) {
      return load_unordered<Angle, Element>(from, extent);
    } else if constexpr (are_apart) {
      return load<Angle>(from, extent);
    } else {
      const auto angles = load<Angle>(from, extent);
      Block<V, 2 * Extent::vectors> block;
      for (std::size_t u = 0; u < Extent::vectors; ++u) {
        block.vector[2 * u] = repeated<0>(angles.vector[u], Lanes());
        block.vector[2 * u + 1] = repeated<kLanes<C> / 2>(angles.vector[u], Lanes());
      }
      return block;
    }
  }
  template <class Extent>
  static TENSOR_OPS_INLINE auto load_sines(const A* from, Extent extent) {
    const auto sine = [](V value) {
      return as_sine<Element, Angle>(are_apart ? value : value * alternating_signs<V>(Lanes()));
    };
    return map(sine, load_angles(from, extent));
  }

  // Vectors of pairs whose angles there are registers for, less where sines are split, and how many
  // of them are turned at a time in the registers that are left.
  static constexpr std::size_t kMostVectors =
      kVectorBytes < 64 ? 2 : (splits_sines<Element, Angle> ? 4 : 8) / kAngles;
  static constexpr std::size_t at_a_time(std::size_t vectors) {
    const std::size_t most = kVectorBytes == 64 ? 4 : 2;
    return vectors * kAngles > most ? most / 2 : vectors;
  }

  // Turns the pairs from the i-th on that fill whole vectors; returns the number of the next pair.
  template <bool streams, std::size_t vectors>
  static TENSOR_OPS_INLINE std::size_t rotate_by(const Rows& rows, std::size_t i) {
    constexpr std::size_t step = vectors * kLanes<C>;
    for (; i + step <= rows.pairs; i += step)
      rotate_columns<streams && vectors != 1, vectors>(rows, i);
    if constexpr (vectors > 1) i = rotate_by<streams, vectors / 2>(rows, i);
    return i;
  }

  // Turns so many vectors of pairs of each row; the angles stay in registers.
  template <bool streams, std::size_t vectors>
  static TENSOR_OPS_INLINE void rotate_columns(const Rows& rows, std::size_t i) {
    constexpr std::size_t each = at_a_time(vectors), blocks = vectors / each;
    constexpr std::size_t pairs_each = each * kLanes<C>;
    constexpr Whole<each, streams> extent;
    Block<V, each * kAngles> cos[blocks];
    Block<Sine, each * kAngles> sin[blocks];
    for (std::size_t b = 0; b < blocks; ++b) {
      cos[b] = load_angles(rows.cos + i + b * pairs_each, extent);
      sin[b] = load_sines(rows.sin + i + b * pairs_each, extent);
    }
    const auto rotate_blocks = [&](auto step) TENSOR_OPS_INLINE_LAMBDA {
      const T* x = rows.x;
      T* y = rows.y;
      for (std::size_t r = 0; r < rows.count; ++r) {
        for (std::size_t b = 0; b < blocks; ++b) {
          const std::size_t at = i + b * pairs_each;
          const auto block = load_pairs(x, at, rows.pairs, extent);
          store_pairs(y, at, rows.pairs, turned<step>(block, cos[b], sin[b]), extent);
        }
        x = advanced(x, rows.x_stride);
        y = advanced(y, rows.y_stride);
      }
    };
    constexpr std::size_t kFewestSharing = 4;
    if constexpr (is_half<Element> && are_apart)
      if (rows.count >= kFewestSharing && are_limited(cos, sin))
        return rotate_blocks(std::integral_constant<std::size_t, 2>());
    rotate_blocks(std::integral_constant<std::size_t, 1>());
  }

  // If all angles are of a limited magnitude, no product overflows: where the first results of
  // pairs of half types are finite, both elements are, and so are the second results, or they round
  // to infinity like those of the formula. It pays to find out if many rows share the angles.
  template <class Cosines, class Sines, std::size_t blocks>
  static TENSOR_OPS_INLINE bool are_limited(const Cosines (&cos)[blocks],
                                            const Sines (&sin)[blocks]) {
    MagnitudeCheck<C> check;
    for (std::size_t b = 0; b < blocks; ++b) {
      for (const V& vector : cos[b].vector) check.include(vector);
      for (const Sine& sine : sin[b].vector) check.include(value_of<V>(sine));
    }
    return check.at_most(static_cast<C>(comes_in_pairs<Element> ? 1 : 0x1p100));
  }

  // The block's pairs turned by their angles. All vectors of results, or every other one, are
  // checked: almost always they are finite.
  template <std::size_t step, std::size_t count, class Cosines, class Sines>
  static TENSOR_OPS_INLINE Block<V, count> turned(const Block<V, count>& x, const Cosines& cos,
                                                  const Sines& sin) {
    Block<V, count> result = results(x, cos, sin, std::make_index_sequence<count>());
    // The sum is not finite if any of them is not, and sometimes where they all are.
    V sum = result.vector[0];
    for (std::size_t u = step; u < count; u += step) sum += result.vector[u];
    MagnitudeCheck<C> check;
    check.include(sum);
    if (__builtin_expect(!check.is_finite(), 0)) {
      // Copies, or the compiler would keep the originals in memory.
      const auto same = [](auto vector) { return vector; };
      Block<V, count> mended = map(same, result);
      mend(mended, map(same, x), map(same, cos), map(same, sin));
      result = map(same, mended);
    }
    return result;
  }

  // A vector of a block is turned with its partner, and the angles of its number.
  template <std::size_t count>
  static TENSOR_OPS_INLINE V partner(const Block<V, count>& x, std::size_t u) {
    if constexpr (are_apart) return x.vector[u ^ 1];
    return swapped(x.vector[u], Lanes());
  }
  static constexpr std::size_t angle(std::size_t u) { return are_apart ? u / 2 : u; }
  static constexpr bool subtracts(std::size_t u) { return are_apart && u % 2 == 0; }

  // The formula's values where they are finite.
  template <std::size_t count, class Cosines, class Sines, std::size_t... u>
  static TENSOR_OPS_INLINE Block<V, count> results(const Block<V, count>& x, const Cosines& cos,
                                                   const Sines& sin, std::index_sequence<u...>) {
    return {{vector_sum<Element, subtracts(u)>(x.vector[u], cos.vector[angle(u)], partner(x, u),
                                               sin.vector[angle(u)])...}};
  }

  // Replaces results that are not finite by the formula's values.
  template <std::size_t count, class Cosines, class Sines>
  static TENSOR_OPS_RARE void mend(Block<V, count>& results, const Block<V, count>& x,
                                   const Cosines& cos, const Sines& sin) {
    for (std::size_t u = 0; u < count; ++u) {
      const V a = x.vector[u], c = subtracts(u) ? -partner(x, u) : partner(x, u);
      const V b = cos.vector[angle(u)], d = value_of<V>(sin.vector[angle(u)]);
      for (std::size_t l = 0; l < kLanes<C>; ++l)
        if (!is_finite(results.vector[u][l]))
          results.vector[u][l] = sum_of_products(a[l], b[l], c[l], d[l]);
    }
  }

  static __attribute__((noinline)) void rotate_rest(const Rows& rows, std::size_t begin) {
    const T* x = rows.x;
    const A *const cos = rows.cos, *const sin = rows.sin;
    T* y = rows.y;
    const std::size_t pairs = rows.pairs;
    for (std::size_t r = 0; r < rows.count; ++r) {
#pragma omp simd
      for (std::size_t i = begin; i < pairs; ++i) {
        const std::size_t first = interleaved ? 2 * i : i;
        const std::size_t second = interleaved ? 2 * i + 1 : pairs + i;
        const C a = Element::load(x[first]), b = Element::load(x[second]);
        const C c = Angle::load(cos[i]), s = Angle::load(sin[i]);
        y[first] = Element::store(sum_of_products(a, c, -b, s));
        y[second] = Element::store(sum_of_products(b, c, a, s));
      }
      x = advanced(x, rows.x_stride);
      y = advanced(y, rows.y_stride);
    }
  }
};

template <class Element, class Angle>
using HalfSplitRotation = Rotation<Element, Angle, false>;
template <class Element, class Angle>
using InterleavedRotation = Rotation<Element, Angle, true>;

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

EXPORT_KERNELS(rope, nanoseconds(0.15, 0.14, 0.19, 0.31),
               each_dtype_and_parameters<HalfSplitRotation>(),
               each_dtype_and_parameters<InterleavedRotation>())
