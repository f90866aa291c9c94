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

// One contiguous row. A block takes kEach times its threads' vectors, so that each thread has
// several loads in flight.
template <class Function, class Element, int kInputs, int kEach>
__global__ void __launch_bounds__(kElementThreads, 1)
    flat_elements(const __grid_constant__ ElementArrays arrays, std::int64_t n) {
  constexpr int kCount = kWidth<Element>;
  const std::int64_t base = std::int64_t{blockIdx.x} * (kElementThreads * kEach) + threadIdx.x;
  Packed<Element, kCount> given[kEach][kInputs];
  int count[kEach];
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const std::int64_t first = (base + e * kElementThreads) * kCount, left = n - first;
    count[e] = left <= 0 ? 0 : left < kCount ? static_cast<int>(left) : kCount;
    if (count[e] == 0) continue;
#pragma unroll
    for (int k = 0; k < kInputs; ++k)
      given[e][k] = load_vector<Element, kCount>(
          static_cast<const Element*>(arrays.array[k]) + first, count[e]);
  }
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    if (count[e] == 0) continue;
    Element* to =
        static_cast<Element*>(arrays.array[kInputs]) + (base + e * kElementThreads) * kCount;
    store_vector(result_of<Function>(given[e]), to, count[e]);
  }
}

// Rows of whole vectors of kCount elements, a vector for each thread.
template <class Function, class Element, int kInputs, int kCount>
__global__ void __launch_bounds__(kElementThreads, 1)
    row_elements(const __grid_constant__ ElementArrays arrays, const __grid_constant__ Rows rows,
                 std::int64_t per_row) {
  const std::int64_t vectors = rows.count * per_row;
  const std::int64_t vector = std::int64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  if (vector >= vectors) return;
  const std::int64_t row = quotient_of(vector, per_row, vectors < (std::int64_t{1} << 31));
  const std::int64_t first = (vector - row * per_row) * kCount;
  const RowOffsets<kInputs + 1> offset(rows, row);
  const auto at = [&](int k) {
    return static_cast<Element*>(arrays.array[k]) + offset.of[k] + first;
  };
  Packed<Element, kCount> given[kInputs];
#pragma unroll
  for (int k = 0; k < kInputs; ++k) given[k] = load_vector<Element, kCount>(at(k), kCount);
  store_vector(result_of<Function>(given), at(kInputs), kCount);
}

inline unsigned blocks_for(std::int64_t vectors, int each) {
  const std::int64_t of_block = std::int64_t{kElementThreads} * each;
  return static_cast<unsigned>((vectors + of_block - 1) / of_block);
}

// Whether the call is one row that begins where vectors do.
inline bool is_flat(const Call& call, int arrays) {
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
    ElementArrays arrays{};
    std::copy_n(call.array, kInputs + 1, arrays.array);
    if (is_flat(call, kInputs + 1)) {
      // A double takes two registers.
      constexpr int kEach = kLoads / kInputs / (sizeof(Element) == 8 ? 2 : 1);
      const std::int64_t vectors = (call.n + kCount - 1) / kCount;
      if (vectors < std::int64_t{kFullThreads} * kEach * call.device.multiprocessors)
        launch(call, {blocks_for(vectors, 1), kElementThreads},
               flat_elements<F, Element, kInputs, 1>, arrays, call.n);
      else
        launch(call, {blocks_for(vectors, kEach), kElementThreads},
               flat_elements<F, Element, kInputs, kEach>, arrays, call.n);
    } else if (fits_vectors(call, kInputs + 1, kCount)) {
      const std::int64_t per_row = call.n / kCount;
      launch(call, {blocks_for(call.rows.count * per_row, 1), kElementThreads},
             row_elements<F, Element, kInputs, kCount>, arrays, call.rows, per_row);
    } else {
      launch(call, {blocks_for(call.rows.count * call.n, 1), kElementThreads},
             row_elements<F, Element, kInputs, 1>, arrays, call.rows, call.n);
    }
  });
}

}  // namespace tensor_ops
