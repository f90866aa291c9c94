// Arrays in the caller's memory: pointer, dtype, shape, strides and device. They own nothing but
// their shape; the memory must live as long as the calls that use it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensor_ops/abi.h"
#include "tensor_ops/backend/errors.h"

namespace tensor_ops::backend {

enum class DType : std::int32_t {
  kFloat32 = TENSOR_OPS_FLOAT32,
  kFloat16 = TENSOR_OPS_FLOAT16,
  kBFloat16 = TENSOR_OPS_BFLOAT16,
  kFloat64 = TENSOR_OPS_FLOAT64,
};

// An element of a half type, as its 16 bits.
struct Float16 {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

// The dtype of elements of type T. Specialise it for a half type of your own:
//     template <> struct tensor_ops::backend::DTypeOf<Half> {
//       static constexpr DType value = DType::kFloat16; };
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kFloat32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kFloat64;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::kFloat16;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::kBFloat16;
};

// The place of memory. The kinds have the numbers of DLPack.
struct Device {
  tensor_ops_device_kind kind = TENSOR_OPS_CPU;
  std::int32_t index = 0;

  static Device cpu() { return {}; }
  static Device cuda(std::int32_t index = 0) { return {TENSOR_OPS_CUDA, index}; }
};

// Shape or strides: up to eight numbers need no memory of their own.
class Extents {
 public:
  Extents() = default;
  // Takes any integers: a list of int64_t would refuse a variable of type size_t.
  template <class... Integers,
            class = std::enable_if_t<(sizeof...(Integers) > 0 &&
                                      (std::is_integral<Integers>::value && ...))>>
  Extents(Integers... values)
      : Extents(
            std::array<std::int64_t, sizeof...(Integers)>{{static_cast<std::int64_t>(values)...}}
                .data(),
            sizeof...(Integers)) {}
  Extents(const std::vector<std::int64_t>& values) : Extents(values.data(), values.size()) {}
  template <class Integer>
  Extents(const Integer* values, std::size_t count) : size_(count) {
    if (count > kFew) many_.resize(count);
    for (std::size_t i = 0; i < count; ++i) data()[i] = static_cast<std::int64_t>(values[i]);
  }

  std::size_t size() const { return size_; }
  const std::int64_t* data() const { return size_ > kFew ? many_.data() : few_; }
  std::int64_t operator[](std::size_t i) const { return data()[i]; }
  const std::int64_t* begin() const { return data(); }
  const std::int64_t* end() const { return data() + size_; }

 private:
  static constexpr std::size_t kFew = 8;

  std::int64_t* data() { return size_ > kFew ? many_.data() : few_; }

  std::size_t size_ = 0;
  std::int64_t few_[kFew] = {};
  std::vector<std::int64_t> many_;
};

namespace detail {

[[noreturn]] inline void refuse_elements(std::size_t elements, const std::string& shape) {
  throw ValueError("a vector of " + std::to_string(elements) + " elements cannot have the shape (" +
                   shape + "); give a shape of as many elements");
}

inline void check_elements(std::size_t elements, const Extents& shape) {
  std::uint64_t count = 1;
  bool fits = true;
  std::string text;
  for (const std::int64_t length : shape) {
    text += (text.empty() ? "" : ", ") + std::to_string(length);
    fits = fits && length >= 0 &&
           (length == 0 || count <= UINT64_MAX / static_cast<std::uint64_t>(length));
    if (fits) count *= static_cast<std::uint64_t>(length);
  }
  if (!fits || count != elements) refuse_elements(elements, text);
}

}  // namespace detail

// An array that an op reads. A default-made one stands for an optional array that is not given, as
// does `{}` in the place of one.
class ConstArray {
 public:
  ConstArray() = default;

  // C-contiguous, unless strides are given: bytes from one element to the next along each axis.
  ConstArray(const void* data, DType dtype, Extents shape, Extents strides = {}, Device device = {})
      : data_(const_cast<void*>(data)),
        dtype_(static_cast<tensor_ops_dtype>(dtype)),
        shape_(std::move(shape)),
        strides_(std::move(strides)),
        device_(device) {
    if (strides_.size() != 0 && strides_.size() != shape_.size())
      throw ValueError("an array of " + std::to_string(shape_.size()) + " axes has " +
                       std::to_string(strides_.size()) +
                       " strides; give one in bytes for each axis, or none");
  }
  template <class T, DType dtype = DTypeOf<T>::value>
  ConstArray(const T* data, Extents shape, Extents strides = {}, Device device = {})
      : ConstArray(static_cast<const void*>(data), dtype, std::move(shape), std::move(strides),
                   device) {}

  // A whole vector, with one axis unless a shape is given.
  template <class T, class A, DType dtype = DTypeOf<T>::value>
  ConstArray(const std::vector<T, A>& values)
      : ConstArray(values.data(), {static_cast<std::int64_t>(values.size())}) {}
  template <class T, class A, DType dtype = DTypeOf<T>::value>
  ConstArray(const std::vector<T, A>& values, Extents shape)
      : ConstArray(values.data(), std::move(shape)) {
    detail::check_elements(values.size(), shape_);
  }

  // The array as the interface of the libraries takes it; it refers to this object.
  tensor_ops_array abi() const {
    return {data_,
            dtype_,
            static_cast<std::int32_t>(shape_.size()),
            shape_.data(),
            strides_.size() == 0 ? nullptr : strides_.data(),
            device_.kind,
            device_.index};
  }

 protected:
  void* data_ = nullptr;
  tensor_ops_dtype dtype_ = TENSOR_OPS_NO_ARRAY;
  Extents shape_, strides_;
  Device device_;
};

// An array that an op may write. Each can stand where one is read.
class Array : public ConstArray {
 public:
  Array() = default;
  Array(void* data, DType dtype, Extents shape, Extents strides = {}, Device device = {})
      : ConstArray(data, dtype, std::move(shape), std::move(strides), device) {}
  template <class T, DType dtype = DTypeOf<T>::value,
            class = std::enable_if_t<!std::is_const<T>::value>>
  Array(T* data, Extents shape, Extents strides = {}, Device device = {})
      : ConstArray(static_cast<const T*>(data), std::move(shape), std::move(strides), device) {}
  template <class T, class A, DType dtype = DTypeOf<T>::value>
  Array(std::vector<T, A>& values) : ConstArray(values) {}
  template <class T, class A, DType dtype = DTypeOf<T>::value>
  Array(std::vector<T, A>& values, Extents shape) : ConstArray(values, std::move(shape)) {}
};

// The array of a DLTensor, or of any struct with its members: data, device, ndim, dtype, shape,
// strides and byte_offset. The struct may go away, its memory not.
template <class Tensor>
Array from_dlpack(const Tensor& tensor) {
  constexpr int kFloat = 2, kBFloat = 4;  // DLDataTypeCode
  const int code = static_cast<int>(tensor.dtype.code), bits = static_cast<int>(tensor.dtype.bits),
            lanes = static_cast<int>(tensor.dtype.lanes);
  const bool is_half = bits == 16, is_float = code == kFloat;
  const bool is_known =
      (is_float && (is_half || bits == 32 || bits == 64)) || (code == kBFloat && is_half);
  if (!is_known || lanes != 1)
    throw TypeError("a DLPack tensor has elements of code " + std::to_string(code) + ", " +
                    std::to_string(bits) + " bits and " + std::to_string(lanes) +
                    " lanes; expected float32, float16, bfloat16 or float64 of one lane");
  const DType dtype = !is_float    ? DType::kBFloat16
                      : is_half    ? DType::kFloat16
                      : bits == 32 ? DType::kFloat32
                                   : DType::kFloat64;
  if (tensor.ndim < 0 || (tensor.ndim > 0 && tensor.shape == nullptr))
    throw ValueError("a DLPack tensor of " + std::to_string(tensor.ndim) +
                     " axes has no shape; give one length for each axis");
  const auto axes = static_cast<std::size_t>(tensor.ndim);
  Extents strides;
  if (tensor.strides != nullptr && axes > 0) {
    std::vector<std::int64_t> bytes(axes);
    for (std::size_t i = 0; i < axes; ++i) bytes[i] = tensor.strides[i] * (bits / 8);
    strides = bytes;
  }
  char* const start = static_cast<char*>(tensor.data);
  return Array(start == nullptr ? nullptr : start + tensor.byte_offset, dtype,
               Extents(tensor.shape, axes), strides,
               {static_cast<tensor_ops_device_kind>(tensor.device.device_type),
                static_cast<std::int32_t>(tensor.device.device_id)});
}

}  // namespace tensor_ops::backend
