// Ops that compute every element alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/addresses.cuh"
#include "kernels/elements.cuh"
#include "kernels/launch.cuh"

namespace tensor_ops {

constexpr int kElementThreads = 256;
// Of one thread, in flight together, where there is enough to do for all threads.
constexpr int kLoads = 4;
// Of a multiprocessor, more or less.
constexpr int kFullThreads = 2048;

struct ElementArrays {
  void* array[3];  // inputs, then the output
};

// One branch for a vector, not one for each element.
template <class Function, class Element, int kInputs, int kCount>
__device__ __forceinline__ Packed<Element, kCount> result_of(
    const Packed<Element, kCount> (&given)[kInputs]) {
  const auto at = [&](int k, int i) { return real(given[k].element[i]); };
  Packed<Element, kCount> result;
  bool is_ordinary = true;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if constexpr (kInputs == 1) {
      is_ordinary &= Function::is_ordinary(at(0, i));
      result.element[i] = rounded_to<Element>(Function::ordinary(at(0, i)));
    } else {
      is_ordinary &= Function::is_ordinary(at(0, i), at(1, i));
      result.element[i] = rounded_to<Element>(Function::ordinary(at(0, i), at(1, i)));
    }
  }
  if (is_ordinary) return result;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if constexpr (kInputs == 1) {
      if (!Function::is_ordinary(at(0, i)))
        result.element[i] = rounded_to<Element>(Function::anywhere(at(0, i)));
    } else {
      if (!Function::is_ordinary(at(0, i), at(1, i)))
        result.element[i] = rounded_to<Element>(Function::anywhere(at(0, i), at(1, i)));
    }
  }
  return result;
}

// A block takes kEach times its threads' vectors, so that each thread has several loads in flight.
template <class Function, class Element, int kInputs, int kCount, int kEach>
__global__ void __launch_bounds__(kElementThreads, 1)
    elements(const __grid_constant__ ElementArrays arrays, const __grid_constant__ Rows rows,
             std::int64_t n, std::int64_t per_row) {
  const std::int64_t vectors = rows.count * per_row;
  const std::int64_t base =
      static_cast<std::int64_t>(blockIdx.x) * (kElementThreads * kEach) + threadIdx.x;
  const bool is_short = vectors < (std::int64_t{1} << 31);
  Packed<Element, kCount> given[kEach][kInputs];
  Element* to[kEach];
  int count[kEach];
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const std::int64_t vector = base + e * kElementThreads;
    const std::int64_t row = rows.count == 1 ? 0 : quotient_of(vector, per_row, is_short);
    const std::int64_t first = (vector - row * per_row) * kCount, left = n - first;
    count[e] = vector >= vectors ? 0 : left < kCount ? static_cast<int>(left) : kCount;
    if (count[e] == 0) continue;
    const RowOffsets<kInputs + 1> offset(rows, row);
#pragma unroll
    for (int k = 0; k < kInputs; ++k)
      given[e][k] = load_vector<Element, kCount>(
          static_cast<const Element*>(arrays.array[k]) + offset.of[k] + first, count[e]);
    to[e] = static_cast<Element*>(arrays.array[kInputs]) + offset.of[kInputs] + first;
  }
#pragma unroll
  for (int e = 0; e < kEach; ++e)
    if (count[e] > 0) store_vector(result_of<Function>(given[e]), to[e], count[e]);
}

template <class Function, class Element, int kInputs, int kCount, int kEach>
void launch_vectors(const Call& call, const ElementArrays& arrays, std::int64_t per_row) {
  const std::int64_t vectors = call.rows.count * per_row;
  constexpr std::int64_t kOfBlock = kElementThreads * kEach;
  const auto blocks = static_cast<unsigned>((vectors + kOfBlock - 1) / kOfBlock);
  launch(call, {blocks, kElementThreads}, elements<Function, Element, kInputs, kCount, kEach>,
         arrays, call.rows, call.n, per_row);
}

// Whether one row can be taken in vectors but for its end.
inline bool is_one_aligned_row(const Call& call, int arrays) {
  if (call.rows.count != 1) return false;
  for (int k = 0; k < arrays; ++k)
    if (reinterpret_cast<std::uintptr_t>(call.array[k]) % kVectorBytes != 0) return false;
  return true;
}

// The launcher of an op. Function<Element> has a short formula, ordinary(), for numbers that
// is_ordinary(), and one that is right anywhere; all take kInputs reals.
template <template <class> class Function, int kInputs>
void launch_elements(const Call& call) {
  with_element(call.dtype, [&](auto element) {
    using Element = decltype(element);
    using F = Function<Element>;
    constexpr int kCount = kWidth<Element>;
    // A double takes two registers.
    constexpr int kEach = kLoads / kInputs / (sizeof(Element) == 8 ? 2 : 1);
    ElementArrays arrays{};
    std::copy_n(call.array, kInputs + 1, arrays.array);
    const bool in_vectors =
        is_one_aligned_row(call, kInputs + 1) || fits_vectors(call, kInputs + 1, kCount);
    if (!in_vectors) return launch_vectors<F, Element, kInputs, 1, kEach>(call, arrays, call.n);
    const std::int64_t per_row = (call.n + kCount - 1) / kCount;
    const std::int64_t to_fill = std::int64_t{kFullThreads} * kEach * call.device.multiprocessors;
    if (call.rows.count * per_row < to_fill)
      return launch_vectors<F, Element, kInputs, kCount, 1>(call, arrays, per_row);
    launch_vectors<F, Element, kInputs, kCount, kEach>(call, arrays, per_row);
  });
}

}  // namespace tensor_ops
