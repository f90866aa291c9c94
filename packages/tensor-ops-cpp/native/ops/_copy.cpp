// _copy: a copy of the input, at the speed that memory allows: what the benchmarks compare with.
#include "op.h"

#if KERNEL_PASS

#include "kernels/rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

template <class Element>
struct Copy {
  using T = typename Element::Storage;
  static void run(const Run& run) {
    for (std::size_t r = 0; r < run.rows; ++r) {
      const T* const x = row_of<const T>(run, 0, r);
      copy_row<Element>(run.streams, run.n, row_of<T>(run, 1, r), x, advanced(x, kAhead));
    }
  }
};

}  // namespace

EXPORT_KERNELS(_copy, each_dtype<Copy>())

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops::declarations {

const Declaration _copy{
    "_copy",
    Walk::kElements,
    "A copy, for the benchmarks.",
    "y = x",
    {rows("x", "Input.")},
    {{"y", "The copy."}},
    "Not part of the package's interface.",
};

}  // namespace tensor_ops::declarations

DECLARE_OP(_copy, nanoseconds(0.08, 0.04, 0.04, 0.18))

#endif
