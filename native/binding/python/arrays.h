// New NumPy arrays, C-contiguous.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "binding/python/python.h"

namespace tensor_ops {

template <class T>
struct NumPyType;
template <>
struct NumPyType<std::uint8_t> {
  static constexpr int number = NPY_UINT8;
};
template <>
struct NumPyType<std::int32_t> {
  static constexpr int number = NPY_INT32;
};
template <>
struct NumPyType<float> {
  static constexpr int number = NPY_FLOAT32;
};
template <>
struct NumPyType<double> {
  static constexpr int number = NPY_FLOAT64;
};

using Shape = std::vector<std::size_t>;

// Not initialised. Throws PythonError.
Owned empty_array(int type, const Shape& shape);

// Over memory that an owner keeps, which is an object. Throws PythonError.
Owned array_over(int type, const Shape& shape, void* memory, Owned owner);

template <class T>
T* data_of(const Owned& array) {
  return static_cast<T*>(PyArray_DATA(array.array()));
}

// Throws PythonError.
template <class T>
Owned copied_array(const Shape& shape, const std::vector<T>& values) {
  Owned array = empty_array(NumPyType<T>::number, shape);
  std::copy(values.begin(), values.end(), data_of<T>(array));
  return array;
}

}  // namespace tensor_ops
