// Gradients of normalisations with respect to a row, and terms of those of weight and bias, shared
// by rms_norm_backward, add_rms_norm_backward and layer_norm_backward.
#pragma once

#include "kernels/wide_norm_gradient.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// A row is computed in pieces of so many elements, after those of other types are converted: that
// takes two forms of the arithmetic, of float and of double, in place of one for each mixture.
constexpr std::size_t kPiece = 1024;

// Between these, scales and gradients have lost nothing to overflow or underflow: the mean square
// with eps, and the magnitudes of gradients and weights.
template <class C>
constexpr double kLeastSquare = sizeof(C) == sizeof(float) ? 0x1p-46 : 0x1p-100;
template <class C>
constexpr double kLargestSquare = sizeof(C) == sizeof(float) ? 0x1p80 : 0x1p800;
template <class C>
constexpr C kLargestGradient = sizeof(C) == sizeof(float) ? C(0x1p60) : C(0x1p500);
template <class C>
constexpr C kLargestWeight = sizeof(C) == sizeof(float) ? C(0x1p30) : C(0x1p200);

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

// The memory of a piece of results in C, and its way from there to its row.
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

// The sums that a pass over a row adds up.
enum class Pass { kDeviations, kProducts, kBoth };

// A norm with a mean has all four in two passes, or in one where there are registers enough for
// their lanes; a norm without one, whose centre is 0, has squares and products in one.
template <bool is_centred, Pass pass, class C>
__attribute__((noinline)) void add_sums(const C* grad, const C* x, const C* weight,
                                        std::size_t count, C centre, RowSums& sums,
                                        MagnitudeCheck<C>& largest) {
  using F = Float<C>;
  constexpr bool has_products = pass != Pass::kDeviations, has_squares = pass != Pass::kProducts;
  Lanes<Vector<C>> deviations, squares, along, products;
  MagnitudeCheck<C> check = largest;
  for_blocks<C>(0, count, [&](std::size_t i, auto extent) TENSOR_OPS_INLINE_LAMBDA {
    const auto block =
        only(extent, map([=](auto value) { return is_centred ? value - centre : value; },
                         load<F>(x + i, extent)));
    if constexpr (has_squares)
      for (std::size_t u = 0; u < extent.vectors; ++u) {
        if constexpr (is_centred) deviations.vector[u] += block.vector[u];
        squares.vector[u] = fma(block.vector[u], block.vector[u], squares.vector[u]);
      }
    if constexpr (has_products) {
      const auto g = load<F>(grad + i, extent);
      const auto weighted =
          map([](auto a, auto w) { return a * w; }, g, load<F>(weight + i, extent));
      for (std::size_t u = 0; u < extent.vectors; ++u) {
        check.include(g.vector[u]);
        if constexpr (is_centred) along.vector[u] += weighted.vector[u];
        products.vector[u] = fma(weighted.vector[u], block.vector[u], products.vector[u]);
      }
    }
  });
  largest = check;
  if constexpr (has_squares) sums.squares += squares.total();
  if constexpr (has_squares && is_centred) sums.deviations += deviations.total();
  if constexpr (has_products) sums.products += products.total();
  if constexpr (has_products && is_centred) sums.along += along.total();
}

template <class C>
__attribute__((noinline)) void include_magnitudes(const C* values, std::size_t count,
                                                  MagnitudeCheck<C>& largest) {
  MagnitudeCheck<C> check = largest;
  for_blocks<C>(0, count, [&](std::size_t i, auto extent) TENSOR_OPS_INLINE_LAMBDA {
    const auto block = load<Float<C>>(values + i, extent);
    for (std::size_t u = 0; u < extent.vectors; ++u) check.include(block.vector[u]);
  });
  largest = check;
}

// The numbers that the gradient of a row takes. The mean is centre + rest, `along` and `product`
// are means of the gradients times the weights, and of those times the normalised row, both times
// the scale.
template <class C>
struct GradientOf {
  C centre, rest, scale, along, product;
};

template <class C>
struct GradientPiece {
  const C *grad, *x, *weight, *added;
  C *result, *of_weight, *of_bias;
};

template <bool is_centred, bool adds, bool streams, class C>
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
    constexpr std::size_t vectors = decltype(extent)::vectors;
    if constexpr (streams && vectors == kUnroll)
      store<F>(at.result + i, result, Whole<kUnroll, true>{});
    else
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

// The arrays of a run are gradients, gradients that are added where `adds`, rows, weights and the
// results. Added gradients, rows and their results are of the same type.
template <class Element, class Parameter, class Rows, bool is_centred, bool adds>
struct NormGradient {
  using C = typename Element::Compute;
  using V = Vector<C>;

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
                            : Summed{nullptr, nullptr}),
        has_safe_weights_(has_safe_weights()) {}

  // body(begin, count) for each piece of a row.
  template <class Body>
  TENSOR_OPS_INLINE void for_pieces(Body body) const {
    for (std::size_t i = 0; i < run_.n; i += kPiece)
      body(i, run_.n - i < kPiece ? run_.n - i : kPiece);
  }

  template <Pass pass>
  TENSOR_OPS_INLINE void add(std::size_t r, C centre, RowSums& sums, MagnitudeCheck<C>& largest) {
    const G* grad = row_of<const G>(run_, 0, r);
    const X* x = row_of<const X>(run_, kX, r);
    const W* weight = row_of<const W>(run_, kWeight, r);
    for_pieces([&](std::size_t i, std::size_t count) {
      constexpr bool has_products = pass != Pass::kDeviations;
      add_sums<is_centred, pass, C>(
          has_products ? grad_.piece(grad + i, count) : nullptr, x_.piece(x + i, count),
          has_products ? weight_.piece(weight + i, count) : nullptr, count, centre, sums, largest);
    });
  }

  // The mean of the first elements, which is near that of most rows.
  TENSOR_OPS_INLINE C first_centre(std::size_t r) {
    constexpr std::size_t kSample = kUnroll * kLanes<C>;
    const std::size_t count = run_.n < kSample ? run_.n : kSample;
    const C* x = x_.piece(row_of<const X>(run_, kX, r), run_.n < kPiece ? run_.n : kPiece);
    double sum = 0;
    for_blocks<C>(0, count, [&](std::size_t i, auto extent) {
      Lanes<V> lanes;
      const auto block = load<Float<C>>(x + i, extent);
      for (std::size_t u = 0; u < extent.vectors; ++u) lanes.vector[u] = block.vector[u];
      sum += lanes.total();
    });
    return static_cast<C>(sum / static_cast<double>(count));
  }

  void row(std::size_t r) {
    const auto n = static_cast<double>(run_.n);
    C centre = 0;
    RowSums sums;
    MagnitudeCheck<C> largest;
    if constexpr (!is_centred) {
      add<Pass::kBoth>(r, centre, sums, largest);
    } else {
      constexpr Pass first = kVectorBytes == 64 ? Pass::kBoth : Pass::kDeviations;
      centre = first_centre(r);
      add<first>(r, centre, sums, largest);
      const double rest = sums.deviations / n;
      if (__builtin_expect(2 * rest * rest > sums.squares / n, 0)) {
        centre += static_cast<C>(rest);
        sums = RowSums();
        add<first>(r, centre, sums, largest);
      }
      if constexpr (first == Pass::kDeviations) add<Pass::kProducts>(r, centre, sums, largest);
    }
    const double rest = is_centred ? sums.deviations / n : 0;
    const double mean_square = at_least(sums.squares / n - rest * rest, 0.0) + run_.scalars[0];
    // Written so that NaN is not safe either.
    const bool is_safe = mean_square > kLeastSquare<C> && mean_square < kLargestSquare<C> &&
                         largest.at_most(kLargestGradient<C>) && has_safe_weights_;
    if (__builtin_expect(!is_safe, 0)) return wide_row(r);
    const double scale = 1 / __builtin_sqrt(mean_square);
    const double product = scale * (sums.products - rest * sums.along) / n;
    write(r, {centre, static_cast<C>(rest), static_cast<C>(scale),
              static_cast<C>(scale * sums.along / n), static_cast<C>(scale * product)});
  }

  // All rows have the same weights.
  bool has_safe_weights() {
    const W* weight = row_of<const W>(run_, kWeight, 0);
    MagnitudeCheck<C> largest;
    for_pieces([&](std::size_t i, std::size_t count) {
      include_magnitudes<C>(weight_.piece(weight + i, count), count, largest);
    });
    return largest.at_most(kLargestWeight<C>);
  }

  TENSOR_OPS_INLINE void write(std::size_t r, const GradientOf<C>& of) {
    // The results of short rows come in bursts, for which one thread would wait.
    constexpr std::size_t kFewestStreamed = 2 * kPiece;
    const auto result = reinterpret_cast<std::uintptr_t>(row_of<X>(run_, kResult, r));
    if (std::is_same_v<X, C> && run_.streams && run_.n >= kFewestStreamed && result % kLine == 0)
      write_pieces<true>(r, of);
    else
      write_pieces<false>(r, of);
  }
  template <bool streams>
  TENSOR_OPS_INLINE void write_pieces(std::size_t r, const GradientOf<C>& of) {
    for_pieces([&](std::size_t i, std::size_t count) {
      X* const result = row_of<X>(run_, kResult, r) + i;
      const C* added = nullptr;
      if constexpr (adds) added = added_.piece(row_of<const X>(run_, 1, r) + i, count);
      C* const of_bias = is_centred ? static_cast<C*>(of_bias_.numbers) + i : nullptr;
      write_piece<is_centred, adds, streams, C>(
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
  const bool has_safe_weights_;  // after weight_, with which it is found
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
