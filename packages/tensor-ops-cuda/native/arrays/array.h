// An array argument, of whatever library, as a call sees it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "binding/dlpack.h"
#include "binding/python.h"
#include "launch/problem.h"

namespace tensor_ops {

constexpr int kHost = -1;  // in the place of a device's index

struct View {
  char* data;
  int device;
  DType dtype;  // kDTypes: not a supported one
  bool is_read_only;
  int dims;
  std::int64_t shape[kMaxDims];
  std::int64_t stride[kMaxDims];  // bytes

  std::int64_t size() const {
    std::int64_t size = 1;
    for (int d = 0; d < dims; ++d) size *= shape[d];
    return size;
  }
  bool is_contiguous() const;
};

// Where an array comes from, and so how its stream is asked for and its like is made.
enum class Source {
  kNumPy,
  kOwn,        // DeviceArray
  kExchange,   // DLPack's C exchange API
  kProtocol,   // DLPack's Python protocol
  kInterface,  // __cuda_array_interface__
};

// A managed tensor that a producer handed out, to be given back.
class Lease {
 public:
  Lease() = default;
  explicit Lease(dlpack::ManagedTensor* tensor) : plain_(tensor) {}
  explicit Lease(dlpack::ManagedTensorVersioned* tensor) : versioned_(tensor) {}
  Lease(Lease&& other) noexcept
      : plain_(std::exchange(other.plain_, nullptr)),
        versioned_(std::exchange(other.versioned_, nullptr)) {}
  Lease& operator=(Lease&& other) noexcept {
    std::swap(plain_, other.plain_);
    std::swap(versioned_, other.versioned_);
    return *this;
  }
  ~Lease();
  explicit operator bool() const { return plain_ || versioned_; }
  // Somebody else gives it back.
  void release() { plain_ = nullptr, versioned_ = nullptr; }

 private:
  dlpack::ManagedTensor* plain_ = nullptr;
  dlpack::ManagedTensorVersioned* versioned_ = nullptr;
};

// As checks/array_checks.h describes it.
struct Array {
  PyObject* object = nullptr;  // borrowed; null where not given
  bool is_output = false;
  Source source;
  View view;
  const dlpack::ExchangeAPI* api = nullptr;  // of kExchange
  // What the array's memory is ready on, where that is known: the call's stream is to wait for it.
  cudaStream_t stream = nullptr;
  bool has_stream = false;
  Lease lease;

  bool is_given() const { return object != nullptr; }
  bool is_numpy() const { return source == Source::kNumPy; }
  DType dtype() const { return view.dtype; }
  int dims() const { return view.dims; }
  const std::int64_t* shape() const { return view.shape; }
  const std::int64_t* strides() const { return view.stride; }
  char* data() const { return view.data; }
  bool is_contiguous() const { return view.is_contiguous(); }
};

// All of a view but its device. Throws ValueError.
void read_tensor(const char* op, const char* name, const dlpack::Tensor& tensor, View& view);

// "float32" or "int64"; "on cuda:0" or "in host memory".
std::string dtype_text(const Array& array);
std::string device_text(int device);

}  // namespace tensor_ops
