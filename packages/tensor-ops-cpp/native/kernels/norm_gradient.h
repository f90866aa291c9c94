// Gradients of normalisations with respect to a row, and terms of those of weight and bias, shared
// by rms_norm_backward, add_rms_norm_backward and layer_norm_backward.
#pragma once

#include "kernels/rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// A row is computed in pieces of so many elements, after those of other types are converted: that
// takes two forms of the arithmetic, of float and of double, in place of one for each mixture.
constexpr std::size_t kPiece = 1024;

// Between these, scales and gradients have lost nothing to overflow or underflow: the mean square
// with eps, and the magnitudes of gradients and of their products with weights.
template <class C>
constexpr double kLeastSquare = sizeof(C) == sizeof(float) ? 0x1p-46 : 0x1p-100;
template <class C>
constexpr double kLargestSquare = sizeof(C) == sizeof(float) ? 0x1p80 : 0x1p800;
template <class C>
constexpr C kLargestGradient = sizeof(C) == sizeof(float) ? C(0x1p100) : C(0x1p800);

// Pieces of a row in C: the row's own memory where it is of that type.
template <class Element>
class Widened {
  using T = typename Element::Storage;
  using C = typename Element::Compute;
  static constexpr bool is_same = std::is_same_v<T, C>;

 public:
  TENSOR_OPS_INLINE const C* piece(const T* from, std::size_t count) {
    if constexpr (is_same) {
      return from;
    } else {
      if (from != from_ || count != count_) convert(from, count, buffer_);
      from_ = from;
      count_ = count;
      return buffer_;
    }
  }

 private:
  static __attribute__((noinline)) void convert(const T* from, std::size_t count, C* to) {
    for_blocks<C>(0, count, [=](std::size_t i, auto extent) {
      store<Float<C>>(to + i, load<Element>(from + i, extent), extent);
    });
  }

  const T* from_ = nullptr;
  std::size_t count_ = 0;
  alignas(kLine) C buffer_[is_same ? 1 : kPiece];
};

// Where a piece of results goes in C, and how it gets from there to its row.
template <class Element>
class Narrowed {
  using T = typename Element::Storage;
  using C = typename Element::Compute;
  static constexpr bool is_same = std::is_same_v<T, C>;

 public:
  TENSOR_OPS_INLINE C* piece(T* to) {
    if constexpr (is_same)
      return to;
    else
      return buffer_;
  }
  TENSOR_OPS_INLINE void finish(T* to, std::size_t count) {
    if constexpr (!is_same) convert(buffer_, count, to);
  }

 private:
  static __attribute__((noinline)) void convert(const C* from, std::size_t count, T* to) {
    for_blocks<C>(0, count, [=](std::size_t i, auto extent) {
      store<Element>(to + i, load<Float<C>>(from + i, extent), extent);
    });
  }

  alignas(kLine) C buffer_[is_same ? 1 : kPiece];
};

// Sums over a row: of the deviations from a centre and their squares, and of the gradients times
// the weights and their products with the deviations.
struct RowSums {
  double deviations = 0, squares = 0, along = 0, products = 0;
};

template <class C>
__attribute__((noinline)) void add_deviations(const C* x, std::size_t count, C centre,
                                              RowSums& sums) {
  Lanes<Vector<C>> deviations, squares;
  for_blocks<C>(0, count, [&](std::size_t i, auto extent) {
    const auto block = only(
        extent, map([=](auto value) { return value - centre; }, load<Float<C>>(x + i, extent)));
    for (std::size_t u = 0; u < extent.vectors; ++u) {
      deviations.vector[u] += block.vector[u];
      squares.vector[u] = fma(block.vector[u], block.vector[u], squares.vector[u]);
    }
  });
  sums.deviations += deviations.total();
  sums.squares += squares.total();
}

// About 0 where not `is_centred`, with the squares in place of the sum of `along`.
template <bool is_centred, class C>
__attribute__((noinline)) void add_products(const C* grad, const C* x, const C* weight,
                                            std::size_t count, C centre, RowSums& sums,
                                            MagnitudeCheck<C>& largest) {
  Lanes<Vector<C>> products, others;
  MagnitudeCheck<C> check = largest;
  for_blocks<C>(0, count, [&](std::size_t i, auto extent) {
    const auto g = load<Float<C>>(grad + i, extent);
    const auto w = load<Float<C>>(weight + i, extent);
    const auto value = load<Float<C>>(x + i, extent);
    for (std::size_t u = 0; u < extent.vectors; ++u) {
      const auto along = g.vector[u] * w.vector[u];
      check.include(g.vector[u]);
      check.include(along);
      const auto deviation = is_centred ? value.vector[u] - centre : value.vector[u];
      products.vector[u] = fma(along, deviation, products.vector[u]);
      others.vector[u] =
          is_centred ? others.vector[u] + along : fma(deviation, deviation, others.vector[u]);
    }
  });
  largest = check;
  sums.products += products.total();
  (is_centred ? sums.along : sums.squares) += others.total();
}

// What the gradient of a row takes. The mean is centre + rest, `along` and `product` are means of
// the gradients times the weights, and of those times the normalised row, both times the scale.
template <class C>
struct GradientOf {
  C centre, rest, scale, along, product;
};

template <class C>
struct GradientPiece {
  const C *grad, *x, *weight, *added;
  C *result, *of_weight, *of_bias;
};

template <bool is_centred, bool adds, class C>
__attribute__((noinline)) void write_piece(const GradientPiece<C>& piece, std::size_t count,
                                           const GradientOf<C>& of) {
  using F = Float<C>;
  const GradientPiece<C> at = piece;
  const GradientOf<C> row = of;
  for_blocks<C>(0, count, [=](std::size_t i, auto extent) TENSOR_OPS_INLINE_LAMBDA {
    const auto grad = load<F>(at.grad + i, extent);
    const auto normalised =
        map([=](auto x) { return (is_centred ? (x - row.centre) - row.rest : x) * row.scale; },
            load<F>(at.x + i, extent));
    auto result = map(
        [=](auto g, auto w, auto x) {
          const auto found = fma(x, Vector<C>{} - row.product, (g * row.scale) * w);
          return is_centred ? found - row.along : found;
        },
        grad, load<F>(at.weight + i, extent), normalised);
    if constexpr (adds)
      result = map([](auto a, auto b) { return a + b; }, result, load<F>(at.added + i, extent));
    store<F>(at.result + i, result, extent);
    store<F>(at.of_weight + i,
             map([](auto g, auto x, auto sum) { return fma(g, x, sum); }, grad, normalised,
                 load<F>(at.of_weight + i, extent)),
             extent);
    if constexpr (is_centred)
      store<F>(at.of_bias + i,
               map([](auto g, auto sum) { return g + sum; }, grad, load<F>(at.of_bias + i, extent)),
               extent);
  });
}

// Elements of a row of any type, for the rows that are computed in double.
struct AnyRow {
  const void* data;
  double (*load)(const void* data, std::size_t i);

  double operator[](std::size_t i) const { return load(data, i); }
};
template <class Element>
AnyRow any_row(const typename Element::Storage* row) {
  return {row, [](const void* data, std::size_t i) {
            return static_cast<double>(
                Element::load(static_cast<const typename Element::Storage*>(data)[i]));
          }};
}
struct AnyResult {
  void* data;
  void (*store)(void* data, std::size_t i, double value);
};
template <class Element>
AnyResult any_result(typename Element::Storage* row) {
  return {row, [](void* data, std::size_t i, double value) {
            static_cast<typename Element::Storage*>(data)[i] =
                Element::store(static_cast<typename Element::Compute>(value));
          }};
}

struct WideRow {
  AnyRow grad, x, weight, added;
  AnyResult result;
  double *of_weight, *of_bias;
  std::size_t n;
  double eps;
};

// The scale of a row, which is multiplied by a factor first, and the mean, which is centre + rest.
struct WideStatistics {
  double factor, centre, rest, mean_square, scale;
};

template <bool is_centred>
TENSOR_OPS_RARE WideStatistics wide_statistics(const WideRow& row, double factor) {
  const auto count = static_cast<double>(row.n);
  const auto x = [&](std::size_t i) { return row.x[i] * factor; };
  WideStatistics found{factor, 0, 0, 0, 0};
  if (is_centred) {
    found.centre = wide_sum_of_chunks(row.n, x) / count;
    const auto deviation = [&](std::size_t i) { return x(i) - found.centre; };
    found.centre += wide_sum_of_chunks(row.n, deviation) / count;
    found.rest = wide_sum_of_chunks(row.n, deviation) / count;
  }
  const auto square = [&](std::size_t i) {
    const double deviation = (x(i) - found.centre) - found.rest;
    return deviation * deviation;
  };
  found.mean_square = wide_sum_of_chunks(row.n, square) / count + wide_eps(row.eps, factor);
  found.scale = 1 / __builtin_sqrt(found.mean_square);
  return found;
}

template <bool is_centred, class C>
TENSOR_OPS_RARE WideStatistics wide_statistics(const WideRow& row) {
  const WideStatistics found = wide_statistics<is_centred>(row, 1);
  if (sizeof(C) == sizeof(float) || is_safe_in(C(), found.mean_square)) return found;
  double largest = 0;
  for (std::size_t i = 0; i < row.n; ++i) largest = at_least(magnitude(row.x[i]), largest);
  double factor = wide_factor<C>(largest);
  // eps must not overflow. Beside one as large as this the squares may vanish.
  if (factor > 1 && row.eps > 0x1p-600) factor = 0x1p300;
  return wide_statistics<is_centred>(row, factor);
}

template <bool is_centred, class C>
TENSOR_OPS_RARE void write_wide_gradient(const WideRow& row) {
  const WideStatistics of = wide_statistics<is_centred, C>(row);
  const double scale = of.scale * of.factor;
  const auto normalised = [&](std::size_t i) {
    return ((row.x[i] * of.factor - of.centre) - of.rest) * of.scale;
  };
  const auto along = [&](std::size_t i) { return row.grad[i] * row.weight[i]; };
  const auto count = static_cast<double>(row.n);
  const double mean = is_centred ? wide_sum_of_chunks(row.n, along) / count : 0;
  const double product =
      wide_sum_of_chunks(row.n, [&](std::size_t i) { return along(i) * normalised(i); }) / count;
  for (std::size_t i = 0; i < row.n; ++i) {
    const double grad = row.grad[i], x = normalised(i);
    double found = (grad * scale) * row.weight[i] - x * (scale * product);
    if (is_centred) found -= scale * mean;
    if (row.added.data) found += row.added[i];
    row.of_weight[i] += grad * x;
    if (is_centred) row.of_bias[i] += grad;
    row.result.store(row.result.data, i, found);
  }
}

// The arrays of a run are gradients, gradients that are added where `adds`, rows, weights and the
// results. Added gradients, rows and their results are of the same type.
template <class Element, class Parameter, class Rows, bool is_centred, bool adds>
struct NormGradient {
  using C = typename Element::Compute;

  static void run(const Run& run) {
    NormGradient kernel(run);
    for (std::size_t r = 0; r < run.rows; ++r) kernel.row(r);
  }

  static void write_totals(const double* totals, std::size_t n, char* to, std::ptrdiff_t stride) {
    for (std::size_t i = 0; i < n; ++i, to += stride) {
      const auto value = Parameter::store(static_cast<typename Parameter::Compute>(totals[i]));
      __builtin_memcpy(to, &value, sizeof value);
    }
  }

 private:
  using G = typename Element::Storage;
  using X = typename Rows::Storage;
  using W = typename Parameter::Storage;
  enum : std::size_t { kX = adds ? 2 : 1, kWeight, kResult, kOfWeight, kOfBias };

  explicit NormGradient(const Run& run)
      : run_(run),
        of_weight_(*reinterpret_cast<const Summed*>(run.data[kOfWeight])),
        of_bias_(is_centred ? *reinterpret_cast<const Summed*>(run.data[kOfBias])
                            : Summed{nullptr, nullptr}) {}

  // body(begin, count) for each piece of a row.
  template <class Body>
  TENSOR_OPS_INLINE void for_pieces(Body body) {
    for (std::size_t i = 0; i < run_.n; i += kPiece)
      body(i, run_.n - i < kPiece ? run_.n - i : kPiece);
  }

  TENSOR_OPS_INLINE RowSums deviations_from(const X* x, C centre) {
    RowSums sums;
    for_pieces([&](std::size_t i, std::size_t count) {
      add_deviations<C>(x_.piece(x + i, count), count, centre, sums);
    });
    return sums;
  }

  void row(std::size_t r) {
    const G* grad = row_of<const G>(run_, 0, r);
    const X* x = row_of<const X>(run_, kX, r);
    const W* weight = row_of<const W>(run_, kWeight, r);
    const auto n = static_cast<double>(run_.n);
    C centre = 0;
    RowSums sums;
    if constexpr (is_centred) {
      constexpr std::size_t kSample = kUnroll * kLanes<C>;
      const std::size_t count = run_.n < kSample ? run_.n : kSample;
      // The mean of the first elements is near that of most rows.
      RowSums first;
      add_deviations<C>(x_.piece(x, run_.n < kPiece ? run_.n : kPiece), count, C(0), first);
      centre = static_cast<C>(first.deviations / static_cast<double>(count));
      sums = deviations_from(x, centre);
      const double rest = sums.deviations / n;
      if (__builtin_expect(2 * rest * rest > sums.squares / n, 0)) {
        centre += static_cast<C>(rest);
        sums = deviations_from(x, centre);
      }
    }
    MagnitudeCheck<C> largest;
    for_pieces([&](std::size_t i, std::size_t count) {
      add_products<is_centred, C>(grad_.piece(grad + i, count), x_.piece(x + i, count),
                                  weight_.piece(weight + i, count), count, centre, sums, largest);
    });
    const double rest = is_centred ? sums.deviations / n : 0;
    const double mean_square = at_least(sums.squares / n - rest * rest, 0.0) + run_.scalars[0];
    // Written so that NaN is not safe either.
    const bool is_safe = mean_square > kLeastSquare<C> && mean_square < kLargestSquare<C> &&
                         largest.at_most(kLargestGradient<C>);
    if (__builtin_expect(!is_safe, 0)) return wide_row(r);
    const double scale = 1 / __builtin_sqrt(mean_square);
    const double product = scale * (sums.products - rest * sums.along) / n;
    write(r, {centre, static_cast<C>(rest), static_cast<C>(scale),
              static_cast<C>(scale * sums.along / n), static_cast<C>(scale * product)});
  }

  TENSOR_OPS_INLINE void write(std::size_t r, const GradientOf<C>& of) {
    for_pieces([&](std::size_t i, std::size_t count) {
      X* const result = row_of<X>(run_, kResult, r) + i;
      const C* added = nullptr;
      if constexpr (adds) added = added_.piece(row_of<const X>(run_, 1, r) + i, count);
      C* const of_bias = is_centred ? static_cast<C*>(of_bias_.numbers) + i : nullptr;
      write_piece<is_centred, adds, C>(
          {grad_.piece(row_of<const G>(run_, 0, r) + i, count),
           x_.piece(row_of<const X>(run_, kX, r) + i, count),
           weight_.piece(row_of<const W>(run_, kWeight, r) + i, count), added,
           result_.piece(result), static_cast<C*>(of_weight_.numbers) + i, of_bias},
          count, of);
      result_.finish(result, count);
    });
  }

  TENSOR_OPS_RARE void wide_row(std::size_t r) {
    AnyRow added{nullptr, nullptr};
    if constexpr (adds) added = any_row<Rows>(row_of<const X>(run_, 1, r));
    write_wide_gradient<is_centred, C>(
        {any_row<Element>(row_of<const G>(run_, 0, r)), any_row<Rows>(row_of<const X>(run_, kX, r)),
         any_row<Parameter>(row_of<const W>(run_, kWeight, r)), added,
         any_result<Rows>(row_of<X>(run_, kResult, r)), of_weight_.totals, of_bias_.totals, run_.n,
         run_.scalars[0]});
  }

  const Run& run_;
  const Summed of_weight_, of_bias_;
  Widened<Element> grad_;
  Widened<Rows> x_, added_;
  Widened<Parameter> weight_;
  Narrowed<Rows> result_;
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
