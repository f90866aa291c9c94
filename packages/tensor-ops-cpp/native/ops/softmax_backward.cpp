// softmax_backward: scale * y * (grad - sum(grad * y)), along rows.
#include "kernels/rows.h"
#include "op.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

template <class Element>
struct SoftmaxBackward {
  using T = typename Element::Storage;
  using C = typename Element::Compute;
  using V = Vector<C>;

  static void run(const Run& run) {
    for (std::size_t r = 0; r < run.rows; ++r)
      row(row_of<const T>(run, 0, r), row_of<const T>(run, 1, r), row_of<T>(run, 2, r), run.n,
          run.scalars[0]);
  }

 private:
  // Gradients and scales of at most these leave room for the arithmetic, as y is at most 1.
  static constexpr C kLargest = sizeof(C) == sizeof(float) ? C(0x1p60) : C(0x1p500);

  static TENSOR_OPS_INLINE void row(const T* grad, const T* y, T* result, std::size_t n,
                                    double scale) {
    MagnitudeCheck<C> largest;
    const double mean = sum_of_chunks(n, [&](std::size_t begin, std::size_t end) {
      Lanes<V> products;
      MagnitudeCheck<C> check = largest;
      for_blocks<C>(begin, end, [&](std::size_t i, auto extent) TENSOR_OPS_INLINE_LAMBDA {
        const auto g = load_unordered<Element>(grad + i, extent);
        const auto p = load_unordered<Element>(y + i, extent);
        for (std::size_t u = 0; u < extent.vectors; ++u) {
          check.include(g.vector[u]);
          products.vector[u] = fma(g.vector[u], p.vector[u], products.vector[u]);
        }
      });
      largest = check;
      return products.total();
    });
    const double limit = static_cast<double>(kLargest);
    const bool is_safe =
        largest.at_most(kLargest) && magnitude(mean) <= limit &&
        (scale == 0 || (magnitude(scale) <= limit && magnitude(scale) >= 1 / limit));
    if (__builtin_expect(!is_safe, 0)) return wide_row(grad, y, result, n, scale);
    const C centre = static_cast<C>(mean), factor = static_cast<C>(scale);
    for_blocks<C>(0, n, [=](std::size_t i, auto extent) TENSOR_OPS_INLINE_LAMBDA {
      store_unordered<Element>(
          result + i,
          map([=](V g, V p) { return (p * factor) * (g - centre); },
              load_unordered<Element>(grad + i, extent), load_unordered<Element>(y + i, extent)),
          extent);
    });
  }

  // In double, where larger gradients are divided by a power of two first.
  static TENSOR_OPS_RARE void wide_row(const T* grad, const T* y, T* result, std::size_t n,
                                       double scale) {
    C largest = 0;
    for (std::size_t i = 0; i < n; ++i)
      largest = at_least(magnitude(Element::load(grad[i])), largest);
    const double part = static_cast<double>(largest) > 0x1p900 ? 0x1p-200 : 1;
    const auto g = [&](std::size_t i) {
      return static_cast<double>(Element::load(grad[i])) * part;
    };
    const auto p = [&](std::size_t i) { return static_cast<double>(Element::load(y[i])); };
    const double mean = wide_sum_of_chunks(n, [&](std::size_t i) { return g(i) * p(i); });
    for (std::size_t i = 0; i < n; ++i) {
      const double difference = g(i) - mean;
      result[i] = Element::store(static_cast<C>(((difference * p(i)) * scale) / part));
    }
  }
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

EXPORT_KERNELS(softmax_backward, nanoseconds(0.17, 0.20, 0.20, 0.35), each_dtype<SoftmaxBackward>())
