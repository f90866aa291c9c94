// Kernels of the gradients of a product value(gate) * up with respect to gate and up.
#pragma once

#include "kernels/elementwise.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// The slope of a function at x, times two factors whose product may be out of range where the
// result is not.
template <class Slope>
TENSOR_OPS_INLINE float slope_times(float x, float a, float b) {
  return static_cast<float>(
      Slope::apply(static_cast<double>(x), static_cast<double>(a) * static_cast<double>(b)));
}
template <class Slope>
TENSOR_OPS_INLINE double slope_times(double x, double a, double b) {
  // The powers taken from the factors are given back in two parts, since 2^1024 is no double.
  double last = 1, rest = 1;
  if (is_finite(a) && is_finite(b))
    for (; !is_finite(a * b); last *= 0x1p63, rest *= 2)
      (magnitude(a) > magnitude(b) ? a : b) *= 0x1p-64;
  return Slope::apply(x, a * b, last) * rest;
}

// Value and Slope are functions of x and a factor, as elementwise.h describes them: the activation
// and its derivative.
template <class Value, class Slope>
struct GatedDerivative {
  template <class Element>
  struct On {
    using T = typename Element::Storage;
    using C = typename Element::Compute;
    using V = Vector<C>;

    static void run(const Run& run) {
      for (std::size_t r = 0; r < run.rows; ++r)
        row(run.n, row_of<const T>(run, 0, r), row_of<const T>(run, 1, r),
            row_of<const T>(run, 2, r), row_of<T>(run, 3, r), row_of<T>(run, 4, r));
    }

   private:
    static TENSOR_OPS_INLINE void row(std::size_t n, const T* grad, const T* gate, const T* up,
                                      T* of_gate, T* of_up) {
      if constexpr (has_vector_form<Slope>) {
        for_blocks<C>(0, n, [=](std::size_t i, auto extent) TENSOR_OPS_INLINE_LAMBDA {
          block(load_unordered<Element>(grad + i, extent),
                load_unordered<Element>(gate + i, extent), load_unordered<Element>(up + i, extent),
                [=](const auto& slopes, const auto& values) {
                  store_unordered<Element>(of_gate + i, slopes, extent);
                  store_unordered<Element>(of_up + i, values, extent);
                });
        });
      } else {
#pragma omp simd
        for (std::size_t i = 0; i < n; ++i) {
          const C g = Element::load(grad[i]), x = Element::load(gate[i]), u = Element::load(up[i]);
          of_gate[i] = Element::store(slope_times<Slope>(x, g, u));
          of_up[i] = Element::store(Value::apply(x, g));
        }
      }
    }

    static constexpr C kOrdinary = Value::template ordinary<C> < Slope::template ordinary<C>
                                       ? Value::template ordinary<C>
                                       : Slope::template ordinary<C>;

    template <std::size_t count, class Store>
    static TENSOR_OPS_INLINE void block(const Block<V, count>& grad, const Block<V, count>& gate,
                                        const Block<V, count>& up, Store store) {
      constexpr Digits digits = kDigitsOf<Element>;
      const auto product = map([](V g, V u) { return g * u; }, grad, up);
      const auto slopes =
          map([](V x, V factor) { return Slope::template apply_ordinary<digits>(x, factor); }, gate,
              product);
      const auto values =
          map([](V x, V factor) { return Value::template apply_ordinary<digits>(x, factor); }, gate,
              grad);
      MagnitudeCheck<C> gates, factors;
      for (std::size_t u = 0; u < count; ++u) {
        gates.include(gate.vector[u]);
        factors.include(product.vector[u]);
        factors.include(grad.vector[u]);
      }
      if (__builtin_expect(gates.at_most(kOrdinary) && factors.at_most(kOrdinaryFactor<C>), 1))
        return store(slopes, values);
      // Copies, or the compiler would keep the originals in memory.
      const auto same = [](V vector) { return vector; };
      Block<V, count> mended_slopes = map(same, slopes), mended_values = map(same, values);
      mend(mended_slopes, mended_values, map(same, grad), map(same, gate), map(same, up));
      store(map(same, mended_slopes), map(same, mended_values));
    }

    // Replaces the lanes whose arguments are not ordinary.
    template <std::size_t count>
    static TENSOR_OPS_RARE void mend(Block<V, count>& slopes, Block<V, count>& values,
                                     const Block<V, count>& grad, const Block<V, count>& gate,
                                     const Block<V, count>& up) {
      for (std::size_t v = 0; v < count; ++v)
        for (std::size_t l = 0; l < kLanes<C>; ++l) {
          const C g = grad.vector[v][l], x = gate.vector[v][l], u = up.vector[v][l];
          const C product = g * u;
          if (magnitude(x) <= kOrdinary && magnitude(product) <= kOrdinaryFactor<C> &&
              magnitude(g) <= kOrdinaryFactor<C>)
            continue;
          slopes.vector[v][l] = slope_times<Slope>(x, g, u);
          values.vector[v][l] = Value::apply(x, g);
        }
    }
  };
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
