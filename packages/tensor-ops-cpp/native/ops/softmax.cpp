// softmax: exp(scale * x - max) / sum, along rows.
#include "kernels/exp.h"
#include "kernels/exp2.h"
#include "kernels/rows.h"
#include "op.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

template <class C>
struct Extremes {
  C least, greatest;
};

// The least and the greatest of x[begin] to x[end - 1]; NaN is passed over.
template <class Element>
TENSOR_OPS_INLINE auto extremes(const typename Element::Storage* x, std::size_t begin,
                                std::size_t end) {
  using C = typename Element::Compute;
  constexpr C infinity = static_cast<C>(__builtin_inf());
  Lanes<Vector<C>> least, greatest;
  for (std::size_t u = 0; u < kUnroll; ++u) {
    least.vector[u] += infinity;
    greatest.vector[u] -= infinity;
  }
  for_blocks<C>(begin, end, [&](std::size_t i, auto extent) {
    const auto block = load_unordered<Element>(x + i, extent);
    const auto low = only(extent, block, infinity), high = only(extent, block, -infinity);
    for (std::size_t u = 0; u < extent.vectors; ++u) {
      least.vector[u] = smaller(low.vector[u], least.vector[u]);
      greatest.vector[u] = larger(high.vector[u], greatest.vector[u]);
    }
  });
  Extremes<C> found{infinity, -infinity};
  for (std::size_t u = 0; u < kUnroll; ++u)
    for (std::size_t l = 0; l < kLanes<C>; ++l) {
      found.least = at_most(found.least, least.vector[u][l]);
      found.greatest = at_least(found.greatest, greatest.vector[u][l]);
    }
  return found;
}

// lo may be anything where exp(hi) is 0, even infinite or NaN.
template <class C>
TENSOR_OPS_INLINE C exp_of(C hi, C lo) {
  return scaled_exp(hi, hi > 2 * ExpConstants<C>::lowest ? lo : 0).value();
}

// exp(scale * (x - peak)), where peak is the x of a row for which that is the largest, for scales
// of ordinary size: where the difference overflows its exponential is 0. The argument is kept as hi
// + lo, since its absolute error is the relative error of the result. Half types have digits enough
// without the low part.
template <class Element, class C>
TENSOR_OPS_INLINE C careful_exp(C x, C peak, Pair<C> scale) {
  if constexpr (is_half<Element>) return scaled_exp((x - peak) * scale.hi).value();
  const Pair<C> difference = exact_sum(x, -peak);
  const Pair<C> product = exact_product(scale.hi, difference.hi);
  return exp_of(product.hi, fma(scale.hi, difference.lo, fma(scale.lo, difference.hi, product.lo)));
}

// The same in double for any scale.
TENSOR_OPS_INLINE double careful_exp_of_any(double x, double peak, double scale) {
  const Pair<double> difference = exact_sum(x, -peak);
  const Pair<double> product = exact_product(scale, difference.hi);
  const double lo = fma(scale, difference.lo, product.lo);
  return exp_of(product.hi, lo == lo ? lo : 0);
}

// exp(scale * x) of vectors, times a power of two that is the same for all of a row: 2^-k, where
// 2^k is about the row's largest exponential. scale * x is nowhere rounded before the nearest k has
// been taken from it. For ordinary rows: positive scales, and products that leave digits enough
// behind the binary point.
template <class Element>
class RowExponentials {
  using C = typename Element::Compute;
  using V = Vector<C>;
  static constexpr Digits digits = kDigitsOf<Element>;

 public:
  // Such products can be told apart finely enough.
  static bool are_ordinary(double scale, double least, double greatest) {
    constexpr double most = is_half<Element>             ? 0x1p11
                            : sizeof(C) == sizeof(float) ? 0x1p16
                                                         : 0x1p40;
    return scale > 0x1p-60 && scale < 0x1p60 && scale * greatest < most &&
           scale * greatest > -most && scale * least < most;
  }

  RowExponentials(C peak, double scale)
      : factor_(factor_of(scale)),
        shifted_peak_(Exp2<V>::whole(shifted(V{} + peak))),
        exp2_(shifted_peak_),
        // The exponential is 0 where the power of two would be subnormal.
        lowest_(Exp2<V>::unshifted(shifted_peak_) + static_cast<C>(1 - kBias)) {}

  // No exponential of a row with this least element is 0.
  TENSOR_OPS_INLINE bool all_show(C least) const {
    return Exp2<V>::unshifted(shifted(V{} + least))[0] > lowest_[0];
  }

  TENSOR_OPS_INLINE V of(V x) const {
    const V at = shifted(x);
    V rest = fma(x, V{} + factor_.hi, -Exp2<V>::unshifted(at));
    if constexpr (digits == Digits::kAll) rest = fma(x, V{} + factor_.lo, rest);
    return exp2_.template of<digits>(at, rest);
  }

  // For a row of which some are.
  TENSOR_OPS_INLINE V of_any(V x) const {
    const V k = Exp2<V>::unshifted(shifted(x));
    const V value = of(x);
    return k < lowest_ ? V{} : value;
  }

 private:
  static constexpr int kBias = sizeof(C) == sizeof(float) ? 127 : 1023;
  static Pair<C> factor_of(double scale) {
    const Pair<double> product = exact_product(scale, ExpConstants<double>::log2_e.hi);
    const C hi = static_cast<C>(product.hi);
    return {hi, static_cast<C>((product.hi - static_cast<double>(hi)) +
                               (product.lo + scale * ExpConstants<double>::log2_e.lo))};
  }
  TENSOR_OPS_INLINE V shifted(V x) const { return fma(x, V{} + factor_.hi, V{} + kExp2Shift<C>); }

  const Pair<C> factor_;
  const V shifted_peak_;
  const Exp2<V> exp2_;
  const V lowest_;
};

template <class Element>
struct Softmax {
  using T = typename Element::Storage;
  using C = typename Element::Compute;
  using V = Vector<C>;

  struct Row {
    const T* x;
    T* y;
    std::size_t n;
    double scale;
    bool streams;
    std::ptrdiff_t to_next;  // bytes from x to that of the next row
  };
  static TENSOR_OPS_INLINE Row row_at(const Run& run, std::size_t r) {
    return {row_of<const T>(run, 0, r),
            row_of<T>(run, 1, r),
            run.n,
            run.scalars[0],
            run.streams,
            run.stride[0]};
  }

  // The ways to compute a row's exponentials.
  enum Method { kOrdinary, kOrdinaryWithZeros, kCareful };
  struct Peak {
    C value;  // the x with the largest exponential
    Method method;
  };
  static TENSOR_OPS_INLINE Peak peak_of(const Row& row, Extremes<C> found) {
    using Exponentials = RowExponentials<Element>;
    const C peak = row.scale >= 0 ? found.greatest : found.least;
    if (!TENSOR_OPS_HAS_FMA ||
        !Exponentials::are_ordinary(row.scale, static_cast<double>(found.least),
                                    static_cast<double>(found.greatest)))
      return {peak, kCareful};
    const bool all_show = Exponentials(peak, row.scale).all_show(found.least);
    return {peak, all_show ? kOrdinary : kOrdinaryWithZeros};
  }

  // function(exponential of a vector), unless the row is to be computed carefully.
  template <class Function>
  static TENSOR_OPS_INLINE void with_exponential(const Row& row, Peak peak, Function function) {
    if (peak.method == kCareful) return;
    const RowExponentials<Element> exponentials(peak.value, row.scale);
    if (peak.method == kOrdinary)
      function([exponentials](V x) { return exponentials.of(x); });
    else
      function([exponentials](V x) { return exponentials.of_any(x); });
  }

  // The exponentials of a block; zeros after a part's elements.
  template <class Exponential, class Extent>
  static TENSOR_OPS_INLINE auto exponentials_of(Exponential exponential, const T* x,
                                                Extent extent) {
    return only(extent, map(exponential, load<Element>(x, extent)));
  }

  // Keeps the exponentials in y, where that holds them as they are, and returns their sum.
  template <class Exponential>
  static TENSOR_OPS_INLINE double sum_in_place(const Row& row, Exponential exponential,
                                               std::size_t begin, std::size_t end) {
    return chunk_sum<C>(begin, end, [&](std::size_t i, auto extent) {
      const auto block = exponentials_of(exponential, row.x + i, extent);
      if constexpr (!is_half<Element>) store<Element>(row.y + i, block, extent);
      return block;
    });
  }

  // The exponentials that sum_in_place() kept, or else computed again, times a factor.
  template <class Exponential>
  static TENSOR_OPS_INLINE void scale_in_place(const Row& row, Exponential exponential, C factor,
                                               std::size_t begin, std::size_t end) {
    const Lines lines = lines_of<Element>(false, begin, end, row.y);
    for_lines<Element>(lines, [&](std::size_t i, auto extent) {
      const auto scaled = [factor](V value) { return value * factor; };
      if constexpr (is_half<Element>)
        store<Element>(row.y + i, map(scaled, exponentials_of(exponential, row.x + i, extent)),
                       extent);
      else
        store<Element>(row.y + i, map(scaled, load<Element>(row.y + i, extent)), extent);
    });
  }

  static TENSOR_OPS_INLINE void row(const Row& row) {
    const Peak peak = peak_of(row, extremes<Element>(row.x, 0, row.n));
    if (peak.method == kCareful) careful_row(row, peak.value);
    with_exponential(row, peak, [&](auto exponential) {
      const double total = sum_of_chunks(row.n, [&](std::size_t begin, std::size_t end) {
        return sum_in_place(row, exponential, begin, end);
      });
      scale_in_place(row, exponential, static_cast<C>(1 / total), 0, row.n);
    });
  }

  // A row with any scale and any numbers.
  static TENSOR_OPS_RARE void careful_row(const Row& row, C peak) {
    const double size = __builtin_fabs(row.scale);
    const auto x = [&](std::size_t i) { return Element::load(row.x[i]); };
    if (!is_finite(peak)) {
      const T nan = Element::store(static_cast<C>(__builtin_nan("")));
      for (std::size_t i = 0; i < row.n; ++i) row.y[i] = nan;
    } else if (size > 0x1p-60 && size < 0x1p60) {
      const C hi = static_cast<C>(row.scale);
      const Pair<C> scale{hi, static_cast<C>(row.scale - static_cast<double>(hi))};
      divide_by_sum(row, [=](std::size_t i) { return careful_exp<Element>(x(i), peak, scale); });
    } else {
      // If the scale is below one, a difference that overflows may have an ordinary product: there
      // it is taken of quarters.
      const double part = size < 1 ? 0.25 : 1, scale = row.scale / part;
      const double part_of_peak = part * static_cast<double>(peak);
      divide_by_sum(row, [=](std::size_t i) {
        return careful_exp_of_any(part * static_cast<double>(x(i)), part_of_peak, scale);
      });
    }
  }
  template <class Exponential>
  static TENSOR_OPS_INLINE void divide_by_sum(const Row& row, Exponential exponential_at) {
    const auto exponential = [=](std::size_t i) { return static_cast<double>(exponential_at(i)); };
    const double total = wide_sum(row.n, exponential);
#pragma omp simd
    for (std::size_t i = 0; i < row.n; ++i)
      row.y[i] = Element::store(static_cast<C>(exponential(i) / total));
  }

  // For rows whose exponentials are kept in a cache from summing to scaling.
  struct Kept {
    struct Row : Softmax::Row {
      C* kept;
    };
    using Statistics = C;  // the factor of the exponentials

    // A row that is written with a delay keeps its exponentials while those of the next row are
    // computed.
    static constexpr std::size_t kMost = 32768 / sizeof(C);
    using Rooms = C[2][kMost + kLanes<C>];
    static TENSOR_OPS_INLINE Row row_at(const Run& run, std::size_t r, Rooms* rooms) {
      return {Softmax::row_at(run, r), (*rooms)[run.streams ? r % 2 : 0]};
    }

    template <class Writer>
    static TENSOR_OPS_INLINE void row(const Row& row, Writer& writer) {
      const Peak peak = peak_of(row, extremes<Element>(row.x, 0, row.n));
      with_exponential(row, peak, [&](auto exponential) {
        const double total = sum_of_chunks(row.n, [&](std::size_t begin, std::size_t end) {
          return chunk_sum<C>(begin, end, [&](std::size_t i, auto extent) {
            writer.overlap(row, i, extent);
            const auto block = exponentials_of(exponential, row.x + i, extent);
            for (std::size_t u = 0; u < extent.vectors; ++u)
              store_vector(row.kept + i + u * kLanes<C>, block.vector[u]);
            return block;
          });
        });
        writer.finish();
        writer.write(row, static_cast<C>(1 / total));
      });
      if (peak.method != kCareful) return;
      writer.finish();
      careful_row(row, peak.value);
    }

    template <class Extent>
    static TENSOR_OPS_INLINE void write(const Row& row, C factor, std::size_t i, Extent extent) {
      Block<V, Extent::vectors> block;
      for (std::size_t u = 0; u < Extent::vectors; ++u)
        block.vector[u] = load_vector<V>(row.kept + i + u * kLanes<C>) * factor;
      store<Element>(row.y + i, block, extent);
    }
    template <class Extent>
    static TENSOR_OPS_INLINE void prefetch(const Row& row, std::size_t i, Extent extent,
                                           bool is_next) {
      if (is_next) prefetch_block(row.x + i, row.to_next, extent);
    }

    static void run(const Run& run) {
      alignas(kLine) Rooms rooms;
      run_rows<Element, Kept>(run, &rooms);
    }
  };

  static void run(const Run& run) {
    if (run.n <= Kept::kMost && (run.streams || is_half<Element>)) return Kept::run(run);
    for (std::size_t r = 0; r < run.rows; ++r) row(row_at(run, r));
  }

 private:
  enum { kPeak, kMethod, kFactor };
  static Peak found_peak(const double* found) {
    return {static_cast<C>(found[kPeak]), static_cast<Method>(found[kMethod])};
  }

  static void find_extremes(const RowChunk& chunk) {
    const auto found = extremes<Element>(row_at(chunk.row, 0).x, chunk.begin, chunk.end);
    chunk.partials[0] = static_cast<double>(found.least);
    chunk.partials[1] = static_cast<double>(found.greatest);
  }
  static void find_peak(const Run& run, const double* partials, std::size_t chunks, double* found) {
    Extremes<C> all{static_cast<C>(partials[0]), static_cast<C>(partials[1])};
    for (std::size_t chunk = 1; chunk < chunks; ++chunk) {
      all.least = at_most(all.least, static_cast<C>(partials[chunk * kPartials]));
      all.greatest = at_least(all.greatest, static_cast<C>(partials[chunk * kPartials + 1]));
    }
    const Peak peak = peak_of(row_at(run, 0), all);
    found[kPeak] = static_cast<double>(peak.value);
    found[kMethod] = peak.method;
  }
  static void add_up(const RowChunk& chunk) {
    const Row row = row_at(chunk.row, 0);
    chunk.partials[0] = 0;
    with_exponential(row, found_peak(chunk.found), [&](auto exponential) {
      chunk.partials[0] = sum_in_place(row, exponential, chunk.begin, chunk.end);
    });
  }
  static void find_factor(const Run&, const double* partials, std::size_t chunks, double* found) {
    found[kFactor] = static_cast<double>(static_cast<C>(1 / total_of(partials, chunks, 0)));
  }
  static void write(const RowChunk& chunk) {
    const Row row = row_at(chunk.row, 0);
    const Peak peak = found_peak(chunk.found);
    const C factor = static_cast<C>(chunk.found[kFactor]);
    with_exponential(row, peak, [&](auto exponential) {
      scale_in_place(row, exponential, factor, chunk.begin, chunk.end);
    });
    if (peak.method == kCareful && chunk.begin == 0) careful_row(row, peak.value);
  }

 public:
  static constexpr RowSteps steps{
      {{find_extremes, find_peak}, {add_up, find_factor}, {write, nullptr}}, 3};
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

EXPORT_KERNELS(softmax, nanoseconds(0.24, 0.24, 0.30, 0.61), each_dtype<Softmax>())
