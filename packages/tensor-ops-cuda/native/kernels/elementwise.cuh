// Ops that compute every element alone.
//
// The function of an op is a class: is_ordinary() says whether the short formula, ordinary(), is
// right for given numbers, and general() is right for all. Each takes a number of every input.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/elements.cuh"
#include "kernels/vector_driver.cuh"

namespace tensor_ops {

// Loads of one thread that are in flight together, where there is enough to do for all threads.
constexpr int kLoads = 4;
// About the number of threads that a multiprocessor holds.
constexpr int kFullThreads = 2048;

// The function of a vector's elements, with a single branch for all of them.
template <class Function, class Element, int kInputs, int kCount>
DEVICE Packed<Element, kCount> result_of(const Packed<Element, kCount> (&given)[kInputs]) {
  const auto apply = [&](auto function, int i) {
    const auto x = real(given[0].element[i]);
    if constexpr (kInputs == 1)
      return function(x);
    else
      return function(x, real(given[1].element[i]));
  };
  const auto check = [](auto... x) { return Function::is_ordinary(x...); };
  const auto ordinary = [](auto... x) { return Function::ordinary(x...); };
  const auto general = [](auto... x) { return Function::general(x...); };
  Packed<Element, kCount> result;
  bool is_ordinary = true;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    is_ordinary &= apply(check, i);
    result.element[i] = rounded_to<Element>(apply(ordinary, i));
  }
  if (is_ordinary) return result;
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    if (!apply(check, i)) result.element[i] = rounded_to<Element>(apply(general, i));
  return result;
}

// One contiguous row. A block takes kEach times its threads' vectors, so that each thread has
// several loads in flight.
template <class Function, class Element, int kInputs, int kEach>
__global__ void __launch_bounds__(kVectorThreads, 1)
    compute_flat(const __grid_constant__ Pointers<kInputs + 1> arrays, std::int64_t n) {
  constexpr int kCount = kWidth<Element>;
  const std::int64_t base = std::int64_t{blockIdx.x} * (kVectorThreads * kEach) + threadIdx.x;
  Packed<Element, kCount> given[kEach][kInputs];
  int count[kEach];
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const std::int64_t first = (base + e * kVectorThreads) * kCount, left = n - first;
    count[e] = left <= 0 ? 0 : left < kCount ? static_cast<int>(left) : kCount;
    if (count[e] == 0) continue;
#pragma unroll
    for (int k = 0; k < kInputs; ++k)
      load_part(given[e][k], static_cast<const Element*>(arrays.array[k]) + first, 0, count[e],
                count[e] == kCount);
  }
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    if (count[e] == 0) continue;
    Element* to =
        static_cast<Element*>(arrays.array[kInputs]) + (base + e * kVectorThreads) * kCount;
    store_part(result_of<Function>(given[e]), to, 0, count[e], count[e] == kCount);
  }
}

// Rows of whole vectors of kCount elements.
template <class Function, class Element, int kInputs, int kCount>
struct ElementRows : Arrays<kInputs + 1> {
  using Vector = Packed<Element, kCount>;
  using Arrays<kInputs + 1>::Arrays;

  DEVICE void vector(std::int64_t row, std::int64_t index) const {
    const RowAddresses address(*this, row, index * kCount);
    Vector given[kInputs];
#pragma unroll
    for (int k = 0; k < kInputs; ++k) given[k] = *address.template in<Element, const Vector>(k);
    *address.template in<Element, Vector>(kInputs) = result_of<Function>(given);
  }
};

// A flat call is one row that begins where vectors do.
inline bool is_flat(const Call& call, int arrays) {
  return call.rows.count == 1 && std::all_of(call.array, call.array + arrays, [](void* data) {
           return reinterpret_cast<std::uintptr_t>(data) % kVectorBytes == 0;
         });
}

// The launcher of an op of kInputs arrays.
template <template <class> class Function, int kInputs>
void launch_elements(const Call& call) {
  with_element(call.dtype, [&](auto element) {
    using Element = decltype(element);
    using F = Function<Element>;
    constexpr int kCount = kWidth<Element>;
    if (is_flat(call, kInputs + 1)) {
      // A thread has fewer loads of double in flight, which take twice the registers.
      constexpr int kEach = kLoads / kInputs / (sizeof(Element) == 8 ? 2 : 1);
      const std::int64_t vectors = (call.n + kCount - 1) / kCount;
      const bool is_small =
          vectors < std::int64_t{kFullThreads} * kEach * call.device.multiprocessors;
      const auto kernel = is_small ? compute_flat<F, Element, kInputs, 1>
                                   : compute_flat<F, Element, kInputs, kEach>;
      launch(call.stream, vector_grid(vectors, is_small ? 1 : kEach), kernel,
             Pointers<kInputs + 1>(call), call.n);
    } else if (fits_vectors(call, kInputs + 1, kCount)) {
      launch_vectors(call, ElementRows<F, Element, kInputs, kCount>(call), call.n / kCount);
    } else {
      launch_vectors(call, ElementRows<F, Element, kInputs, 1>(call), call.n);
    }
  });
}

// The same of an op with two variants.
template <template <class> class First, template <class> class Second, int kInputs>
void launch_variants(const Call& call) {
  call.variant == 0 ? launch_elements<First, kInputs>(call)
                    : launch_elements<Second, kInputs>(call);
}

}  // namespace tensor_ops
