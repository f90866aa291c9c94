// layer_norm: (x - mean) / sqrt(var + eps) * weight + bias.
#include "kernels/rows.h"
#include "op.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// The mean as centre + rest: deviations from the centre lose nothing when |mean| >> std, as long as
// the centre is near the mean.
template <class C>
struct Moments {
  C centre, rest;
  double variance;

  TENSOR_OPS_INLINE C mean() const { return centre + rest; }
};

// The sums of deviations from a centre, and of their squares.
struct Sums {
  double deviations, squares;
};

// The variance is infinite where the squares are, whatever the rest.
template <class C>
TENSOR_OPS_INLINE Moments<C> moments_about(C centre, const Sums& sums, double count) {
  const double rest = sums.deviations / count, mean_square = sums.squares / count;
  const double variance =
      is_finite(mean_square) ? at_least(mean_square - rest * rest, 0.0) : mean_square;
  return {centre, static_cast<C>(rest), variance};
}

// The variance and the deviations have lost digits to the distance from centre to mean.
template <class C>
TENSOR_OPS_INLINE bool is_off_centre(const Moments<C>& m) {
  return static_cast<double>(m.rest) * static_cast<double>(m.rest) > m.variance;
}

// Deviations have lost digits where they are subnormal. Above this variance, with eps, results are
// subnormal there too, so that it does not show.
template <class C>
constexpr double kLeastSafe = sizeof(C) == sizeof(float) ? 0x1p-46 : 0x1p-100;

// A row, what it takes to measure it, and the rows that are computed in double.
template <class Element, class Parameter>
struct LayerNormRow {
  using T = typename Element::Storage;
  using W = typename Parameter::Storage;
  using C = typename Element::Compute;
  using V = Vector<C>;

  const T* x;
  const W *weight, *bias;
  const W *weight_copy, *bias_copy;
  T* y;
  std::size_t n;
  double eps;
  bool streams;
  std::ptrdiff_t to_next;  // bytes from x to that of the next row

  // The mean of the first elements, which is near that of most rows.
  TENSOR_OPS_INLINE C first_centre() const { return mean_of_first(x, n); }
  static __attribute__((noinline)) C mean_of_first(const T* x, std::size_t n) {
    constexpr std::size_t kSample = kUnroll * kLanes<C>;
    const std::size_t count = n < kSample ? n : kSample;
    const double sum = chunk_sum<C>(0, count, [&](std::size_t i, auto extent) {
      return load_unordered<Element>(x + i, extent);
    });
    return static_cast<C>(sum / static_cast<double>(count));
  }

  // Sums of a chunk's deviations from the centre and of their squares.
  template <class Writer>
  TENSOR_OPS_INLINE Sums sums_about(C centre, std::size_t begin, std::size_t end,
                                    Writer& writer) const {
    Lanes<V> deviations, squares;
    for_blocks<C>(begin, end, [&](std::size_t i, auto extent) {
      writer.overlap(*this, i, extent);
      const auto block = only(extent, map([centre](V value) { return value - centre; },
                                          load_unordered<Element>(x + i, extent)));
      for (std::size_t u = 0; u < extent.vectors; ++u) {
        deviations.vector[u] += block.vector[u];
        squares.vector[u] = fma(block.vector[u], block.vector[u], squares.vector[u]);
      }
    });
    return {deviations.total(), squares.total()};
  }
  template <class Writer>
  TENSOR_OPS_INLINE Moments<C> moments(C centre, Writer& writer) const {
    Sums sums{};
    for (std::size_t begin = 0; begin < n; begin += kChunk) {
      const Sums of_chunk =
          sums_about(centre, begin, n - begin < kChunk ? n : begin + kChunk, writer);
      sums.deviations += of_chunk.deviations;
      sums.squares += of_chunk.squares;
    }
    return moments_about(centre, sums, static_cast<double>(n));
  }

  // 0 where C has no room for the arithmetic.
  TENSOR_OPS_INLINE C scale_of(const Moments<C>& m) const {
    const double with_eps = m.variance + eps;
    const bool is_safe =
        is_safe_in(C(), with_eps) && (with_eps > kLeastSafe<C> || is_safe_in(C(), m.variance));
    return is_safe ? static_cast<C>(1 / __builtin_sqrt(with_eps)) : C(0);
  }
};

template <class Element, class Parameter>
double largest_magnitude(const LayerNormRow<Element, Parameter>& row) {
  typename Element::Compute largest = 0;
  for (std::size_t i = 0; i < row.n; ++i)
    largest = at_least(magnitude(Element::load(row.x[i])), largest);
  return static_cast<double>(largest);
}

// In double, for a row that needs it.
template <class Element, class Parameter>
TENSOR_OPS_RARE void write_wide(const LayerNormRow<Element, Parameter>& row) {
  using C = typename Element::Compute;
  double factor = wide_factor<C>(largest_magnitude(row));
  // eps must not overflow. Beside one as large as this the squares may vanish.
  if (factor > 1 && row.eps > 0x1p-600) factor = 0x1p300;
  const double eps = wide_eps(row.eps, factor);
  const auto x = [&](std::size_t i) {
    return static_cast<double>(Element::load(row.x[i])) * factor;
  };
  const auto count = static_cast<double>(row.n);
  double centre = wide_sum_of_chunks(row.n, x) / count;
  const auto deviation = [&](std::size_t i) { return x(i) - centre; };
  const auto square = [&](std::size_t i) { return deviation(i) * deviation(i); };
  // The mean of equal numbers is exact after this, and their deviations are 0.
  centre += wide_sum_of_chunks(row.n, deviation) / count;
  const Moments<double> m = moments_about(
      centre, {wide_sum_of_chunks(row.n, deviation), wide_sum_of_chunks(row.n, square)}, count);
  const double scale = 1 / __builtin_sqrt(m.variance + eps);
  // Without a bias the weight is read in its place: of a null pointer, compilers would make masked
  // loads, which fail on emulated processors.
  const auto* const shift = row.bias ? row.bias : row.weight;
#pragma omp simd
  for (std::size_t i = 0; i < row.n; ++i) {
    const double weight = static_cast<double>(Parameter::load(row.weight[i]));
    const double bias = static_cast<double>(Parameter::load(shift[i]));
    const double scaled = ((deviation(i) - m.rest) * scale) * weight;
    row.y[i] = Element::store(static_cast<C>(row.bias ? scaled + bias : scaled));
  }
}

// `has_copies` is true of runs with deinterleaved copies of the parameters behind their arrays.
template <class Element, class Parameter, bool has_copies = false>
struct LayerNorm {
  using Row = LayerNormRow<Element, Parameter>;
  using T = typename Row::T;
  using W = typename Row::W;
  using C = typename Row::C;
  using V = typename Row::V;
  struct Statistics {
    C centre, rest, scale;
  };

  static TENSOR_OPS_INLINE Row row_at(const Run& run, std::size_t r) {
    return {row_of<const T>(run, 0, r),
            row_of<const W>(run, 1, r),
            optional_row_of<const W>(run, 2, r),
            has_copies ? row_of<const W>(run, 4, r) : nullptr,
            has_copies ? row_of<const W>(run, 5, r) : nullptr,
            row_of<T>(run, 3, r),
            run.n,
            run.scalars[0],
            run.streams,
            run.stride[0]};
  }

  template <class Writer>
  static TENSOR_OPS_INLINE void row(const Row& row, Writer& writer) {
    Moments<C> m = row.moments(row.first_centre(), writer);
    writer.finish();
    if (__builtin_expect(is_off_centre(m), 0)) m = moments_again(row, m.mean());
    const C scale = row.scale_of(m);
    if (scale == 0)
      write_wide(row);
    else
      writer.write(row, {m.centre, m.rest, scale});
  }

  template <class Extent>
  static TENSOR_OPS_INLINE void write(const Row& row, const Statistics& of, std::size_t i,
                                      Extent extent) {
    const auto scaled = [of](V x, V weight) {
      return (((x - of.centre) - of.rest) * of.scale) * weight;
    };
    const auto x = load_unordered<Element>(row.x + i, extent);
    const auto weight =
        load_parameters<Element, Parameter, has_copies>(row.weight, row.weight_copy, i, extent);
    auto y = map(scaled, x, weight);
    if (row.bias)
      y = map([](V value, V bias) { return value + bias; }, y,
              load_parameters<Element, Parameter, has_copies>(row.bias, row.bias_copy, i, extent));
    store_unordered<Element>(row.y + i, y, extent);
  }
  template <class Extent>
  static TENSOR_OPS_INLINE void prefetch(const Row& row, std::size_t i, Extent extent,
                                         bool is_next) {
    prefetch_block(row.x + i, is_next ? row.to_next : kAhead, extent);
  }

 private:
  static TENSOR_OPS_RARE Moments<C> moments_again(const Row& row, C centre) {
    ImmediateWriter<Element, LayerNorm> alone;
    return row.moments(centre, alone);
  }
};

template <class Element, class Parameter>
struct LayerNormKernel {
  static void run(const Run& run) {
    with_copied_parameters<Element, Parameter, 2>(run, [](const Run& given, auto has_copies) {
      run_rows<Element, LayerNorm<Element, Parameter, has_copies>>(given);
    });
  }

 private:
  using Plain = LayerNorm<Element, Parameter>;
  using Row = typename Plain::Row;
  using C = typename Row::C;

  // The numbers found of a shared row. It is measured about its first centre, and once more where
  // that turns out to be off.
  enum { kCentre, kRest, kScale, kState };
  enum State { kNew, kOffCentre, kMeasured };

  static C centre_of(const Row& row, const double* found) {
    return found[kState] == kNew ? row.first_centre() : static_cast<C>(found[kCentre]);
  }
  static void measure(const RowChunk& chunk) {
    if (chunk.found[kState] == kMeasured) return;
    const Row row = Plain::row_at(chunk.row, 0);
    ImmediateWriter<Element, Plain> alone;
    const Sums sums = row.sums_about(centre_of(row, chunk.found), chunk.begin, chunk.end, alone);
    chunk.partials[0] = sums.deviations;
    chunk.partials[1] = sums.squares;
  }
  static void find_moments(const Run& run, const double* partials, std::size_t chunks,
                           double* found) {
    if (found[kState] == kMeasured) return;
    const Row row = Plain::row_at(run, 0);
    const Sums sums{total_of(partials, chunks, 0), total_of(partials, chunks, 1)};
    const Moments<C> m = moments_about(centre_of(row, found), sums, static_cast<double>(row.n));
    const bool is_off = found[kState] == kNew && is_off_centre(m);
    found[kState] = is_off ? kOffCentre : kMeasured;
    found[kCentre] = static_cast<double>(is_off ? m.mean() : m.centre);
    found[kRest] = static_cast<double>(m.rest);
    found[kScale] = static_cast<double>(row.scale_of(m));
  }
  static void write(const RowChunk& chunk) {
    const Row row = Plain::row_at(chunk.row, 0);
    const auto found = [&](int k) { return static_cast<C>(chunk.found[k]); };
    if (found(kScale) != 0)
      write_lines_out_of_line<Element, Plain>(
          row, {found(kCentre), found(kRest), found(kScale)},
          lines_of<Element>(row.streams, chunk.begin, chunk.end, row.y));
    else if (chunk.begin == 0)
      write_wide(row);
  }

 public:
  static constexpr RowSteps steps{
      {{measure, find_moments}, {measure, find_moments}, {write, nullptr}}, 3};
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

EXPORT_KERNELS(layer_norm, nanoseconds(0.20, 0.25, 0.24, 0.41),
               each_dtype_and_parameters<LayerNormKernel>())
