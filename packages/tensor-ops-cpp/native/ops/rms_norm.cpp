// rms_norm: x * weight / sqrt(mean(x^2) + eps).
#include "op.h"

#if KERNEL_PASS

#include "kernels/rms.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

template <class Element>
struct RmsNorm {
  using T = typename Element::Storage;
  using Compute = typename Element::Compute;

  struct Values {
    const T* x;
    template <class C>
    TENSOR_OPS_INLINE C at(std::size_t i) const {
      return static_cast<C>(Element::load(x[i]));
    }
  };

  static void row(const T* x, const T* weight, T* y, std::size_t n, double eps) {
    rms_normalise<Compute>(
        n, eps, Values{x}, [=](std::size_t i) { return Element::load(weight[i]); },
        [=](std::size_t i, auto, auto value) {
          y[i] = Element::store(static_cast<Compute>(value));
        });
  }

  static void run(const Run& run) {
    for (std::size_t r = 0; r < run.rows; ++r)
      row(row_of<const T>(run, 0, r), row_of<const T>(run, 1, r), row_of<T>(run, 2, r), run.n,
          run.scalars[0]);
  }
};

}  // namespace

EXPORT_KERNELS(rms_norm, each_dtype<RmsNorm>())

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {

DECLARE_OP(rms_norm,
           {
               "rms_norm",
               Walk::kRows,
               Cost::kArithmetic,
               "Root-mean-square normalisation of the last axis.",
               "y = x * weight / sqrt(mean(x**2) + eps)",
               {rows("x", "Input."), row("weight", "Scale of each element of a row."),
                non_negative("eps", 1e-6, "Added to the mean of squares.")},
               {{"y", "The normalised rows."}},
               "B. Zhang and R. Sennrich, Root mean square layer normalization, arXiv:1910.07467.",
           })

}  // namespace tensor_ops

#endif
