// add_rms_norm: h = x + residual; y = h * weight / sqrt(mean(h^2) + eps), y from the sum before
// rounding.
#include "op.h"

#if KERNEL_PASS

#include "kernels/rms.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

template <class Element>
struct AddRmsNorm {
  using T = typename Element::Storage;
  using Compute = typename Element::Compute;

  struct Sums {
    const T *x, *residual;
    template <class C>
    TENSOR_OPS_INLINE C at(std::size_t i) const {
      return static_cast<C>(Element::load(x[i])) + static_cast<C>(Element::load(residual[i]));
    }
  };

  static void row(const T* x, const T* residual, const T* weight, T* y, T* h, std::size_t n,
                  double eps) {
    rms_normalise<Compute>(
        n, eps, Sums{x, residual}, [=](std::size_t i) { return Element::load(weight[i]); },
        [=](std::size_t i, auto sum, auto value) {
          y[i] = Element::store(static_cast<Compute>(value));
          h[i] = Element::store(static_cast<Compute>(sum));
        });
  }

  static void run(const Run& run) {
    for (std::size_t r = 0; r < run.rows; ++r)
      row(row_of<const T>(run, 0, r), row_of<const T>(run, 1, r), row_of<const T>(run, 2, r),
          row_of<T>(run, 3, r), row_of<T>(run, 4, r), run.n, run.scalars[0]);
  }
};

}  // namespace

EXPORT_KERNELS(add_rms_norm, each_dtype<AddRmsNorm>())

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {

DECLARE_OP(add_rms_norm,
           {
               "add_rms_norm",
               Walk::kRows,
               Cost::kArithmetic,
               "Residual addition, then root-mean-square normalisation of the last axis.",
               "h = x + residual\n    y = h * weight / sqrt(mean(h**2) + eps)",
               {rows("x", "Input."), rows("residual", "Added to x."),
                row("weight", "Scale of each element of a row."),
                non_negative("eps", 1e-6, "Added to the mean of squares.")},
               {{"y", "The normalised rows."}, {"h", "The sum."}},
               "y is computed from the sum before it is rounded to a half dtype.\n"
               "B. Zhang and R. Sennrich, Root mean square layer normalization, arXiv:1910.07467.",
           })

}  // namespace tensor_ops

#endif
