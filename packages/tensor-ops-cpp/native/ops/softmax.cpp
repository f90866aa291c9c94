// softmax: exp(scale * x - max) / sum, along rows.
#include "op.h"

#if KERNEL_PASS

#include "kernels/exp.h"
#include "kernels/exp2.h"
#include "kernels/rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

template <class C>
struct Extremes {
  C least, greatest;
};

// Where exp(hi) is 0 anyway lo may be anything, even infinite or NaN.
template <class C>
TENSOR_OPS_INLINE C exp_of(C hi, C lo) {
  return scaled_exp(hi, hi > 2 * ExpConstants<C>::lowest ? lo : 0).value();
}

// exp(scale * (x[i] - peak)), peak being the x for which that is the largest, for scales of
// ordinary size: where the difference overflows its exponential is 0. The argument is kept as hi +
// lo, since its absolute error is the relative error of the result.
template <class Element>
struct Exponentials {
  using T = typename Element::Storage;
  using C = typename Element::Compute;
  const T* x;
  C peak;
  Pair<C> scale;

  Exponentials(const T* row, C peak_of_row, double factor)
      : x(row), peak(peak_of_row), scale{static_cast<C>(factor), 0} {
    scale.lo = static_cast<C>(factor - static_cast<double>(scale.hi));
  }

  TENSOR_OPS_INLINE C at(std::size_t i) const {
    const C value = Element::load(x[i]);
    if constexpr (sizeof(T) == 2) {
      // The half types have digits enough without the low part.
      return scaled_exp((value - peak) * scale.hi).value();
    } else {
      const Pair<C> difference = exact_sum(value, -peak);
      const Pair<C> product = exact_product(scale.hi, difference.hi);
      const C lo = fma(scale.hi, difference.lo, fma(scale.lo, difference.hi, product.lo));
      return exp_of(product.hi, lo);
    }
  }
};

// The same in double for any scale. Below one, a difference that overflows may have an ordinary
// product: there it is taken of quarters.
template <class Element>
struct AnyScaleExponentials {
  const typename Element::Storage* x;
  double part, scale, peak;

  AnyScaleExponentials(const typename Element::Storage* row, typename Element::Compute peak_of_row,
                       double factor)
      : x(row),
        part(__builtin_fabs(factor) < 1 ? 0.25 : 1),
        scale(factor / part),
        peak(part * static_cast<double>(peak_of_row)) {}

  TENSOR_OPS_INLINE double at(std::size_t i) const {
    const double value = part * static_cast<double>(Element::load(x[i]));
    const Pair<double> difference = exact_sum(value, -peak);
    const Pair<double> product = exact_product(scale, difference.hi);
    const double lo = fma(scale, difference.lo, product.lo);
    return exp_of(product.hi, lo == lo ? lo : 0);
  }
};

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
  // Which products can be told apart finely enough.
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
        // Where the power of two would be no normal number the exponential is 0.
        lowest_(Exp2<V>::unshifted(shifted_peak_) + static_cast<C>(1 - kBias)) {}

  // Whether none of a row with this least element is 0.
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

  // NaN is passed over.
  static TENSOR_OPS_INLINE Extremes<C> extremes(const T* x, std::size_t begin, std::size_t end) {
    constexpr C infinity = static_cast<C>(__builtin_inf());
    Lanes<V> least, greatest;
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

  // How a row's exponentials can be computed.
  enum Method { kOrdinary, kOrdinaryWithZeros, kCareful };

  static TENSOR_OPS_INLINE C peak_of(const Row& row, Extremes<C> found) {
    return row.scale >= 0 ? found.greatest : found.least;
  }
  static TENSOR_OPS_INLINE Method method_for(const Row& row, Extremes<C> found) {
    using Exponentials = RowExponentials<Element>;
    if (!TENSOR_OPS_HAS_FMA ||
        !Exponentials::are_ordinary(row.scale, static_cast<double>(found.least),
                                    static_cast<double>(found.greatest)))
      return kCareful;
    const Exponentials exponentials(peak_of(row, found), row.scale);
    return exponentials.all_show(found.least) ? kOrdinary : kOrdinaryWithZeros;
  }

  // function(exponential of a vector), for a method other than kCareful.
  template <class Function>
  static TENSOR_OPS_INLINE auto with_exponential(const Row& row, Method method, C peak,
                                                 Function function) {
    const RowExponentials<Element> exponentials(peak, row.scale);
    return method == kOrdinary ? function([exponentials](V x) { return exponentials.of(x); })
                               : function([exponentials](V x) { return exponentials.of_any(x); });
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
    write_row<Element>(false, begin, end, row.y, [&](std::size_t i, auto extent) {
      const auto scaled = [factor](V value) { return value * factor; };
      if constexpr (is_half<Element>)
        return map(scaled, exponentials_of(exponential, row.x + i, extent));
      else
        return map(scaled, load<Element>(row.y + i, extent));
    });
  }

  template <class Exponential>
  static TENSOR_OPS_INLINE void ordinary_row(const Row& row, Exponential exponential) {
    const double total = sum_of_chunks(row.n, [&](std::size_t begin, std::size_t end) {
      return sum_in_place(row, exponential, begin, end);
    });
    scale_in_place(row, exponential, static_cast<C>(1 / total), 0, row.n);
  }

  // Rows whose exponentials are kept in a cache from summing to scaling.
  static constexpr std::size_t kKept = 32768 / sizeof(C);

  struct KeptRows {
    struct Row : Softmax::Row {
      C* kept;
    };
    using Found = C;  // the factor
    static TENSOR_OPS_INLINE bool streams(const Run& run) { return run.streams; }

    template <class Exponential, class Writer>
    static TENSOR_OPS_INLINE double sum(const Row& row, Exponential exponential, Writer& writer) {
      return sum_of_chunks(row.n, [&](std::size_t begin, std::size_t end) {
        return chunk_sum<C>(begin, end, [&](std::size_t i, auto extent) {
          writer.beside(row, i, extent);
          const auto block = exponentials_of(exponential, row.x + i, extent);
          for (std::size_t u = 0; u < extent.vectors; ++u)
            store_vector(row.kept + i + u * kLanes<C>, block.vector[u]);
          return block;
        });
      });
    }
    template <class Extent>
    static TENSOR_OPS_INLINE void write(const Row& row, C factor, std::size_t i, Extent extent) {
      Block<V, Extent::vectors> block;
      for (std::size_t u = 0; u < Extent::vectors; ++u)
        block.vector[u] = load_vector<V>(row.kept + i + u * kLanes<C>) * factor;
      store<Element>(row.y + i, block, extent);
    }
    template <class Extent>
    static TENSOR_OPS_INLINE void ask_ahead(const Row&, std::size_t, Extent) {}
    template <class Extent>
    static TENSOR_OPS_INLINE void ask_next(const Row& row, std::size_t i, Extent extent) {
      prefetch_block(row.x + i, row.to_next, extent);
    }

    static void run(const Run& run) {
      alignas(kLine) C kept[2][kKept + kLanes<C>];
      with_writer<Element, KeptRows>(run, [&](auto writer) {
        std::size_t next = 0;
        for (std::size_t r = 0; r < run.rows; ++r) {
          const Row row{row_at(run, r), kept[next]};
          with_method(row, [&](auto exponential) {
            next = (next + 1) % writer.rows_at_a_time;
            const double total = sum(row, exponential, writer);
            writer.finish();
            writer.write(row, static_cast<C>(1 / total));
          });
        }
        writer.finish();
      });
    }
  };

  // A row with any scale and any numbers.
  static __attribute__((noinline)) void careful_row(const Row& row, C peak) {
    const double size = __builtin_fabs(row.scale);
    if (!is_finite(peak))
      fill_nan(row.y, row.n);
    else if (size > 0x1p-60 && size < 0x1p60)
      careful_row_of(row, Exponentials<Element>(row.x, peak, row.scale));
    else
      careful_row_of(row, AnyScaleExponentials<Element>(row.x, peak, row.scale));
  }

  static void fill_nan(T* y, std::size_t n) {
    const T nan = Element::store(static_cast<C>(__builtin_nan("")));
    for (std::size_t i = 0; i < n; ++i) y[i] = nan;
  }

  template <class AllExponentials>
  static TENSOR_OPS_INLINE void careful_row_of(const Row& row, AllExponentials exponentials) {
    const auto exponential = [&](std::size_t i) { return static_cast<double>(exponentials.at(i)); };
    const double total = wide_sum(row.n, exponential);
#pragma omp simd
    for (std::size_t i = 0; i < row.n; ++i)
      row.y[i] = Element::store(static_cast<C>(exponential(i) / total));
  }

  // function(exponential of a vector) for a row that need not be done carefully.
  template <class Function>
  static TENSOR_OPS_INLINE void with_method(const Row& row, Function function) {
    const Extremes<C> found = extremes(row.x, 0, row.n);
    const C peak = peak_of(row, found);
    const Method method = method_for(row, found);
    if (method == kCareful)
      careful_row(row, peak);
    else
      with_exponential(row, method, peak, function);
  }

  static void run(const Run& run) {
    if (run.n <= kKept && (run.streams || is_half<Element>)) return KeptRows::run(run);
    for (std::size_t r = 0; r < run.rows; ++r) {
      const Row row = row_at(run, r);
      with_method(row, [&](auto exponential) { ordinary_row(row, exponential); });
    }
  }

 private:
  enum { kPeak, kMethod, kFactor };

  static void find_extremes(const RowChunk& chunk) {
    const Extremes<C> found = extremes(row_at(chunk.row, 0).x, chunk.begin, chunk.end);
    chunk.partials[0] = static_cast<double>(found.least);
    chunk.partials[1] = static_cast<double>(found.greatest);
  }
  static void find_peak(const Run& run, const double* partials, std::size_t chunks, double* found) {
    Extremes<C> all{static_cast<C>(partials[0]), static_cast<C>(partials[1])};
    for (std::size_t chunk = 1; chunk < chunks; ++chunk) {
      all.least = at_most(all.least, static_cast<C>(partials[chunk * kPartials]));
      all.greatest = at_least(all.greatest, static_cast<C>(partials[chunk * kPartials + 1]));
    }
    const Row row = row_at(run, 0);
    found[kPeak] = static_cast<double>(peak_of(row, all));
    found[kMethod] = method_for(row, all);
  }
  static void add_up(const RowChunk& chunk) {
    chunk.partials[0] = 0;
    with_found(chunk, [&](const Row& row, auto exponential) {
      chunk.partials[0] = sum_in_place(row, exponential, chunk.begin, chunk.end);
    });
  }
  static void find_factor(const Run&, const double* partials, std::size_t chunks, double* found) {
    found[kFactor] = static_cast<double>(static_cast<C>(1 / total_of(partials, chunks, 0)));
  }
  static void write(const RowChunk& chunk) {
    const C factor = static_cast<C>(chunk.found[kFactor]);
    with_found(chunk, [&](const Row& row, auto exponential) {
      scale_in_place(row, exponential, factor, chunk.begin, chunk.end);
    });
    const bool is_careful = static_cast<Method>(chunk.found[kMethod]) == kCareful;
    if (is_careful && chunk.begin == 0)
      careful_row(row_at(chunk.row, 0), static_cast<C>(chunk.found[kPeak]));
  }

  // function(row, exponential) unless the row is to be done carefully.
  template <class Function>
  static TENSOR_OPS_INLINE void with_found(const RowChunk& chunk, Function function) {
    const auto method = static_cast<Method>(chunk.found[kMethod]);
    if (method == kCareful) return;
    const Row row = row_at(chunk.row, 0);
    with_exponential(row, method, static_cast<C>(chunk.found[kPeak]),
                     [&](auto exponential) { function(row, exponential); });
  }

 public:
  static constexpr RowSteps steps{
      {{find_extremes, find_peak}, {add_up, find_factor}, {write, nullptr}}, 3};
};

}  // namespace

EXPORT_KERNELS(softmax, each_dtype<Softmax>())

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {

DECLARE_OP(softmax, nanoseconds(0.24, 0.24, 0.30, 0.61),
           {
               "softmax",
               Walk::kRows,
               "Softmax of the scaled last axis, stable for any magnitude.",
               "y = exp(scale * x - max(scale * x)) / sum(exp(scale * x - max(scale * x)))",
               {rows("x", "Input."), scalar("scale", 1.0, "Multiplies x.")},
               {{"y", "The probabilities, which add up to 1 along each row."}},
               "J. S. Bridle, Probabilistic interpretation of feedforward classification "
               "network outputs, 1990.",
           })

}  // namespace tensor_ops

#endif
