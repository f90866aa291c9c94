// tensor_ops_cuda.DeviceArray: an array of our own in device memory, for callers without another
// library.
#pragma once

#include <memory>
#include <vector>

#include "arrays/array.h"
#include "launch/memory.h"

namespace tensor_ops {

// C-contiguous. Its memory is released, in the order of its stream, when the last view is gone.
struct DeviceArray {
  int device = 0;
  DType dtype = kDTypes;
  std::vector<std::int64_t> shape;
  std::shared_ptr<void> memory;   // null where there are no elements
  cudaStream_t stream = nullptr;  // what it was last written on

  void* data() const { return memory.get(); }
  std::int64_t size() const;
  std::size_t bytes() const;
};

// On the device, which is current. The stream's owner, if there is one, is kept alive with the
// memory.
DeviceArray new_device_array(int device, DType dtype, int dims, const std::int64_t* shape,
                             cudaStream_t stream, PyObject* stream_owner = nullptr);

// Borrowed; null where there is none.
PyObject* stream_owner_of(const DeviceArray& array);

// From host memory of any strides, and to C-contiguous host memory. The host waits, and the GIL is
// not needed.
void upload(const View& from, const DeviceArray& to);
void download(const DeviceArray& from, void* to);

void read_device_array(const DeviceArray& array, View& view);

// A capsule, versioned or not, for `__dlpack__`.
PyObject* to_capsule(const DeviceArray& array, bool versioned);

// The Python type is made by python/device_array.cpp.
bool is_device_array_type(PyTypeObject* type);
const DeviceArray& device_array_of(PyObject* object);
PyObject* to_object(DeviceArray array);  // throws PythonError

}  // namespace tensor_ops
