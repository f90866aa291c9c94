// Kernels of ops that compute each element from the elements at the same place.
#pragma once

#include "kernels/rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// y = Function::apply(x)
template <class Function>
struct Unary {
  template <class Element>
  struct On {
    using T = typename Element::Storage;
    static void row(const T* x, T* y, std::size_t n) {
#pragma omp simd
      for (std::size_t i = 0; i < n; ++i)
        y[i] = Element::store(Function::apply(Element::load(x[i])));
    }
    static void run(const Run& run) {
      for (std::size_t r = 0; r < run.rows; ++r)
        row(row_of<const T>(run, 0, r), row_of<T>(run, 1, r), run.n);
    }
  };
};

// y = Function::apply(gate, up), which is Function::apply(gate) * up even where the first factor is
// no normal number
template <class Function>
struct Gated {
  template <class Element>
  struct On {
    using T = typename Element::Storage;
    static void row(const T* gate, const T* up, T* y, std::size_t n) {
#pragma omp simd
      for (std::size_t i = 0; i < n; ++i)
        y[i] = Element::store(Function::apply(Element::load(gate[i]), Element::load(up[i])));
    }
    static void run(const Run& run) {
      for (std::size_t r = 0; r < run.rows; ++r)
        row(row_of<const T>(run, 0, r), row_of<const T>(run, 1, r), row_of<T>(run, 2, r), run.n);
    }
  };
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
