// Kernels of ops that compute each element from the elements at the same place.
#pragma once

#include "kernels/exp2.h"
#include "kernels/rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// The largest second factor of the vector form: so small that the digits which a subnormal product
// loses do not show in the result.
template <class C>
constexpr C kOrdinaryFactor = sizeof(C) == sizeof(float) ? C(0x1p23) : C(0x1p52);

// Function::apply(x...) computes one result for any arguments. Function::apply_ordinary(x...),
// which a function may have for speed, computes vectors of results for ordinary arguments: a first
// one of at most Function::ordinary in magnitude, and a second one of at most kOrdinaryFactor.
template <class Function, class = void>
constexpr bool has_vector_form = false;
template <class Function>
constexpr bool
    has_vector_form<Function, std::void_t<decltype(Function::template ordinary<float>)>> =
        TENSOR_OPS_HAS_FMA;

template <class Function, class Element>
struct Map {
  using T = typename Element::Storage;
  using C = typename Element::Compute;
  using V = Vector<C>;

  template <class... In>
  static TENSOR_OPS_INLINE void row(bool streams, std::size_t n, T* y, const In*... x) {
    if constexpr (has_vector_form<Function>) {
      write_unordered_row<Element>(streams, 0, n, y, [=](std::size_t i, auto extent) {
        if constexpr (extent.streams) (prefetch_block(x + i, kAhead, extent), ...);
        return of_blocks(load_unordered<Element>(x + i, extent)...);
      });
    } else {
#pragma omp simd
      for (std::size_t i = 0; i < n; ++i)
        y[i] = Element::store(Function::apply(Element::load(x[i])...));
    }
  }

 private:
  template <std::size_t count, class... More>
  static TENSOR_OPS_INLINE Block<V, count> of_blocks(const Block<V, count>& x,
                                                     const More&... more) {
    Block<V, count> result = map(
        [](auto... vectors) {
          return Function::template apply_ordinary<kDigitsOf<Element>>(vectors...);
        },
        x, more...);
    const bool is_ordinary = (are_at_most(x, Function::template ordinary<C>) & ... &
                              are_at_most(more, kOrdinaryFactor<C>));
    if (__builtin_expect(!is_ordinary, 0)) {
      // Copies, or the compiler would keep the originals in memory.
      const auto same = [](V vector) { return vector; };
      Block<V, count> mended = map(same, result);
      mend(mended, map(same, x), map(same, more)...);
      result = map(same, mended);
    }
    return result;
  }

  // False if one is NaN.
  template <std::size_t count>
  static TENSOR_OPS_INLINE bool are_at_most(const Block<V, count>& x, C limit) {
    MagnitudeCheck<C> check;
    for (std::size_t u = 0; u < count; ++u) check.include(x.vector[u]);
    return check.at_most(limit);
  }

  // Replaces the lanes whose arguments are not ordinary.
  template <std::size_t count, class... Blocks>
  static TENSOR_OPS_RARE void mend(Block<V, count>& result, const Blocks&... x) {
    mend_lanes(count * kLanes<C>, reinterpret_cast<C*>(&result), reinterpret_cast<const C*>(&x)...);
  }
  template <class... More>
  static TENSOR_OPS_INLINE void mend_lanes(std::size_t n, C* y, const C* x, const More*... more) {
#pragma omp simd
    for (std::size_t i = 0; i < n; ++i) {
      const bool is_ordinary = (magnitude(x[i]) <= Function::template ordinary<C>)&(
          true & ... & (magnitude(more[i]) <= kOrdinaryFactor<C>));
      const C value = Function::apply(x[i], more[i]...);
      y[i] = is_ordinary ? y[i] : value;
    }
  }
};

// The driver of all rows of a run: y = Function::apply(x...).
template <class Function, class Inputs>
struct Elementwise;
template <class Function, std::size_t... k>
struct Elementwise<Function, std::index_sequence<k...>> {
  template <class Element>
  struct On {
    using T = typename Element::Storage;
    static void run(const Run& run) {
      for (std::size_t r = 0; r < run.rows; ++r)
        Map<Function, Element>::row(run.streams, run.n, row_of<T>(run, sizeof...(k), r),
                                    row_of<const T>(run, k, r)...);
    }
  };
};
template <class Function>
using Unary = Elementwise<Function, std::index_sequence<0>>;
// Function::apply(gate, up) is Function::apply(gate) * up even where the first factor is subnormal.
template <class Function>
using Gated = Elementwise<Function, std::index_sequence<0, 1>>;

// Function::apply(x, grad), of arrays in the other order: the argument whose size decides is x.
template <class Function>
using ByDerivative = Elementwise<Function, std::index_sequence<1, 0>>;

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
