// layer_norm: (x - mean) / sqrt(var + eps) * weight + bias.
#include "op.h"

#if KERNEL_PASS

#include "kernels/rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// The mean as centre + rest: deviations from the centre lose nothing when |mean| >> std, as long as
// the centre is near the mean.
template <class C>
struct Moments {
  C centre, rest;
  double variance;
};

// From the sums of the deviations from the centre and of their squares. These being infinite the
// variance is too, whatever the rest.
template <class C>
TENSOR_OPS_INLINE Moments<C> moments_about(C centre, double deviations, double squares,
                                           double count) {
  const double rest = deviations / count, mean_square = squares / count;
  const double variance =
      is_finite(mean_square) ? at_least(mean_square - rest * rest, 0.0) : mean_square;
  return {centre, static_cast<C>(rest), variance};
}

// Whether the variance and the deviations have lost digits to the distance from centre to mean.
template <class C>
TENSOR_OPS_INLINE bool is_off_centre(const Moments<C>& m) {
  return static_cast<double>(m.rest) * static_cast<double>(m.rest) > m.variance;
}

template <class Element, class Parameter>
struct LayerNorm {
  using T = typename Element::Storage;
  using W = typename Parameter::Storage;
  using C = typename Element::Compute;
  using V = Vector<C>;

  struct Row {
    const T* x;
    const W *weight, *bias;
    const W *weight_apart, *bias_apart;  // where they are taken apart once for a run
    T* y;
    std::size_t n;
    double eps;
    bool streams;
    std::ptrdiff_t to_next;  // bytes from x to that of the next row
  };
  struct Found {
    C centre, rest, scale;
  };
  // The copies follow the arrays of a run that has them.
  template <bool is_once = false>
  static TENSOR_OPS_INLINE Row row_at(const Run& run, std::size_t r) {
    return {row_of<const T>(run, 0, r),
            row_of<const W>(run, 1, r),
            optional_row_of<const W>(run, 2, r),
            is_once ? row_of<const W>(run, 4, r) : nullptr,
            is_once ? row_of<const W>(run, 5, r) : nullptr,
            row_of<T>(run, 3, r),
            run.n,
            run.scalars[0],
            run.streams,
            run.stride[0]};
  }

  // The mean of the first elements, which is near that of most rows.
  static TENSOR_OPS_INLINE C first_centre(const Row& row) {
    constexpr std::size_t kSample = kUnroll * kLanes<C>;
    const std::size_t count = row.n < kSample ? row.n : kSample;
    const double sum = chunk_sum<C>(0, count, [&](std::size_t i, auto extent) {
      return load_unordered<Element>(row.x + i, extent);
    });
    return static_cast<C>(sum / static_cast<double>(count));
  }
  static TENSOR_OPS_INLINE C next_centre(const Moments<C>& m) { return m.centre + m.rest; }

  // Sums of a chunk's deviations from the centre and of their squares.
  struct Sums {
    double deviations, squares;
  };
  template <class Writer>
  static TENSOR_OPS_INLINE Sums sums_about(C centre, const Row& row, std::size_t begin,
                                           std::size_t end, Writer& writer) {
    Lanes<V> deviations, squares;
    for_blocks<C>(begin, end, [&](std::size_t i, auto extent) {
      writer.beside(row, i, extent);
      const auto block = only(extent, map([centre](V value) { return value - centre; },
                                          load_unordered<Element>(row.x + i, extent)));
      for (std::size_t u = 0; u < extent.vectors; ++u) {
        deviations.vector[u] += block.vector[u];
        squares.vector[u] = fma(block.vector[u], block.vector[u], squares.vector[u]);
      }
    });
    return {deviations.total(), squares.total()};
  }

  // 0 where C has no room for the arithmetic.
  static TENSOR_OPS_INLINE C scale_of(const Row& row, const Moments<C>& m) {
    return is_safe_in(C(), m.variance + row.eps)
               ? static_cast<C>(1 / __builtin_sqrt(m.variance + row.eps))
               : C(0);
  }

  template <bool has_bias, bool once = false>
  struct Written {
    using Row = LayerNorm::Row;
    using Found = LayerNorm::Found;
    static constexpr bool is_once = once;
    static TENSOR_OPS_INLINE bool streams(const Run& run) { return run.streams; }

    template <class Extent>
    static TENSOR_OPS_INLINE void write(const Row& row, const Found& found, std::size_t i,
                                        Extent extent) {
      const auto scaled = [found](V x, V weight) {
        return (((x - found.centre) - found.rest) * found.scale) * weight;
      };
      const auto x = load_unordered<Element>(row.x + i, extent);
      const auto weight =
          load_parameters<Element, Parameter, is_once>(row.weight, row.weight_apart, i, extent);
      if constexpr (has_bias) {
        const auto shifted = [scaled](V x, V weight, V bias) { return scaled(x, weight) + bias; };
        const auto bias =
            load_parameters<Element, Parameter, is_once>(row.bias, row.bias_apart, i, extent);
        store_unordered<Element>(row.y + i, map(shifted, x, weight, bias), extent);
      } else {
        store_unordered<Element>(row.y + i, map(scaled, x, weight), extent);
      }
    }
    template <class Extent>
    static TENSOR_OPS_INLINE void ask_ahead(const Row& row, std::size_t i, Extent extent) {
      prefetch_block(row.x + i, kAhead, extent);
    }
    template <class Extent>
    static TENSOR_OPS_INLINE void ask_next(const Row& row, std::size_t i, Extent extent) {
      prefetch_block(row.x + i, row.to_next, extent);
    }
  };

  static TENSOR_OPS_INLINE double largest_magnitude(const Row& row) {
    C largest = 0;
    for (std::size_t i = 0; i < row.n; ++i)
      largest = at_least(magnitude(Element::load(row.x[i])), largest);
    return static_cast<double>(largest);
  }

  // In double, for a row that needs it.
  static __attribute__((noinline)) void wide_row(const Row& row) {
    const double factor = wide_factor<C>(largest_magnitude(row));
    const double eps = wide_eps(row.eps, factor);
    const auto x = [&](std::size_t i) {
      return static_cast<double>(Element::load(row.x[i])) * factor;
    };
    const auto count = static_cast<double>(row.n);
    double centre = wide_sum_of_chunks(row.n, x) / count;
    const auto deviation = [&](std::size_t i) { return x(i) - centre; };
    // The mean of equal numbers is exact after this, and their deviations are 0.
    centre += wide_sum_of_chunks(row.n, deviation) / count;
    const Moments<double> m = moments_about(
        centre, wide_sum_of_chunks(row.n, deviation),
        wide_sum_of_chunks(row.n, [&](std::size_t i) { return deviation(i) * deviation(i); }),
        count);
    const double scale = 1 / __builtin_sqrt(m.variance + eps);
#pragma omp simd
    for (std::size_t i = 0; i < row.n; ++i) {
      const double weight = static_cast<double>(Parameter::load(row.weight[i]));
      const double bias = row.bias ? static_cast<double>(Parameter::load(row.bias[i])) : 0;
      const double scaled = ((deviation(i) - m.rest) * scale) * weight;
      row.y[i] = Element::store(static_cast<C>(row.bias ? scaled + bias : scaled));
    }
  }

  template <class Writer>
  static TENSOR_OPS_INLINE Moments<C> moments(const Row& row, C centre, Writer& writer) {
    Sums sums{};
    for (std::size_t begin = 0; begin < row.n; begin += kChunk) {
      const Sums of_chunk =
          sums_about(centre, row, begin, row.n - begin < kChunk ? row.n : begin + kChunk, writer);
      sums.deviations += of_chunk.deviations;
      sums.squares += of_chunk.squares;
    }
    return moments_about(centre, sums.deviations, sums.squares, static_cast<double>(row.n));
  }
  static __attribute__((noinline)) Moments<C> moments_again(const Row& row, C centre) {
    Alone alone;
    return moments(row, centre, alone);
  }

  static void run(const Run& run) {
    if constexpr (takes_apart<Element, Parameter>)
      if (is_taken_apart_once<Element>(run, 2, run.stride[3])) return run_once(run);
    return run.data[2] ? run_all<Written<true>>(run) : run_all<Written<false>>(run);
  }

 private:
  template <class How>
  static TENSOR_OPS_INLINE void run_all(const Run& run) {
    with_writer<Element, How>(run, [&](auto writer) {
      for (std::size_t r = 0; r < run.rows; ++r) {
        const Row row = row_at<How::is_once>(run, r);
        Moments<C> m = moments(row, first_centre(row), writer);
        writer.finish();
        if (__builtin_expect(is_off_centre(m), 0)) m = moments_again(row, next_centre(m));
        const C scale = scale_of(row, m);
        if (scale == 0)
          wide_row(row);
        else
          writer.write(row, {m.centre, m.rest, scale});
      }
      writer.finish();
    });
  }

  static __attribute__((noinline)) void run_once(const Run& run) {
    alignas(kLine) W parameters[kMostTakenApart];
    W* const weight = parameters;
    W* const bias = parameters + kMostTakenApart / 2;
    const T* const y = row_of<const T>(run, 3, 0);
    take_apart<Element, Parameter>(run.n, weight, row_of<const W>(run, 1, 0), y);
    if (run.data[2]) take_apart<Element, Parameter>(run.n, bias, row_of<const W>(run, 2, 0), y);
    char* const data[] = {run.data[0],
                          run.data[1],
                          run.data[2],
                          run.data[3],
                          reinterpret_cast<char*>(weight),
                          reinterpret_cast<char*>(bias)};
    const std::ptrdiff_t stride[] = {
        run.stride[0], run.stride[1], run.stride[2], run.stride[3], 0, 0};
    const Run once{data, stride, run.rows, run.n, run.scalars, run.streams};
    return run.data[2] ? run_all<Written<true, true>>(once) : run_all<Written<false, true>>(once);
  }

  using Alone = AtOnce<Element, Written<false>>;

  enum { kCentre, kRest, kScale, kIsOffCentre };

  static void measure_about(C centre, const RowChunk& chunk) {
    Alone alone;
    const Sums sums = sums_about(centre, row_at(chunk.row, 0), chunk.begin, chunk.end, alone);
    chunk.partials[0] = sums.deviations;
    chunk.partials[1] = sums.squares;
  }
  static Moments<C> found_moments(C centre, const Row& row, const double* partials,
                                  std::size_t chunks, double* found) {
    const Moments<C> m = moments_about(centre, total_of(partials, chunks, 0),
                                       total_of(partials, chunks, 1), static_cast<double>(row.n));
    found[kCentre] = static_cast<double>(m.centre);
    found[kRest] = static_cast<double>(m.rest);
    found[kScale] = static_cast<double>(scale_of(row, m));
    return m;
  }

  static void measure(const RowChunk& chunk) {
    measure_about(first_centre(row_at(chunk.row, 0)), chunk);
  }
  static void find_moments(const Run& run, const double* partials, std::size_t chunks,
                           double* found) {
    const Row row = row_at(run, 0);
    const Moments<C> m = found_moments(first_centre(row), row, partials, chunks, found);
    found[kIsOffCentre] = is_off_centre(m);
    if (is_off_centre(m)) found[kCentre] = static_cast<double>(next_centre(m));
  }
  static void measure_again(const RowChunk& chunk) {
    if (chunk.found[kIsOffCentre] != 0) measure_about(static_cast<C>(chunk.found[kCentre]), chunk);
  }
  static void find_moments_again(const Run& run, const double* partials, std::size_t chunks,
                                 double* found) {
    if (found[kIsOffCentre] != 0)
      found_moments(static_cast<C>(found[kCentre]), row_at(run, 0), partials, chunks, found);
  }
  static void write_chunk(const RowChunk& chunk) {
    const Row row = row_at(chunk.row, 0);
    const auto found = [&](int k) { return static_cast<C>(chunk.found[k]); };
    const Found all{found(kCentre), found(kRest), found(kScale)};
    if (all.scale == 0 && chunk.begin > 0) return;
    if (all.scale == 0)
      wide_row(row);
    else if (row.bias)
      write_measured<Element, Written<true>>(row, all, chunk.begin, chunk.end);
    else
      write_measured<Element, Written<false>>(row, all, chunk.begin, chunk.end);
  }

 public:
  static constexpr RowSteps steps{
      {{measure, find_moments}, {measure_again, find_moments_again}, {write_chunk, nullptr}}, 3};
};

}  // namespace

EXPORT_KERNELS(layer_norm, each_dtype_and_parameters<LayerNorm>())

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {

DECLARE_OP(layer_norm, nanoseconds(0.20, 0.25, 0.24, 0.41),
           {
               "layer_norm",
               Walk::kRows,
               "Normalisation of the last axis to mean 0 and variance 1, scaled and shifted.",
               "y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias",
               {rows("x", "Input."), row("weight", "Scale of each element of a row."),
                optional_row("bias", "Added to each row."),
                non_negative("eps", 1e-5, "Added to the variance.")},
               {{"y", "The normalised rows."}},
               "J. L. Ba, J. R. Kiros and G. E. Hinton, Layer normalization, arXiv:1607.06450.",
           })

}  // namespace tensor_ops

#endif
