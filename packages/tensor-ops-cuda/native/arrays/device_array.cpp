#include "arrays/device_array.h"

#include <algorithm>

#include "arrays/readers.h"
#include "declaration/errors.h"
#include "launch/area.h"
#include "launch/device.h"

namespace tensor_ops {
namespace {

// Releases the memory before the stream that it is ordered by, whose owner may be a Python object.
// Any thread may do so.
struct Release {
  int device;
  cudaStream_t stream;
  PyObject* stream_owner;

  void operator()(void* memory) const {
    if (is_forked_child()) return;
    try {
      const CurrentDevice current(device);
      // It may be another thread's.
      if (stream == cudaStreamPerThread) synchronize_device();
      FreeInOrder{stream}(memory);
    } catch (const Error&) {
      // The driver is gone, and the memory with it.
    }
    if (!stream_owner || !Py_IsInitialized()) return;
    const PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF(stream_owner);
    PyGILState_Release(state);
  }
};

// Strides of a C-contiguous array, in elements.
std::vector<std::int64_t> element_strides(const DeviceArray& array) {
  std::vector<std::int64_t> strides(array.shape.size());
  std::int64_t step = 1;
  for (std::size_t d = strides.size(); d-- > 0;) {
    strides[d] = step;
    step *= array.shape[d];
  }
  return strides;
}

// A capsule's tensor points to this.
struct Exported {
  DeviceArray array;
  std::vector<std::int64_t> strides;
  dlpack::ManagedTensor plain;
  dlpack::ManagedTensorVersioned versioned;
};

template <class Managed>
void delete_exported(Managed* managed) {
  delete static_cast<Exported*>(managed->context);
}

template <class Managed>
void fill(Managed& managed, Exported* exported) {
  managed.context = exported;
  managed.deleter = delete_exported<Managed>;
  managed.tensor = {exported->array.data(),
                    {dlpack::kCUDA, exported->array.device},
                    static_cast<std::int32_t>(exported->array.shape.size()),
                    dlpack::data_type(exported->array.dtype),
                    exported->array.shape.data(),
                    exported->strides.data(),
                    0};
}

// Deletes the tensor of a capsule that nobody has used.
template <class Managed>
void delete_unused(PyObject* capsule, const char* name) {
  if (!PyCapsule_IsValid(capsule, name)) return;
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  managed->deleter(managed);
}

void delete_unused_plain(PyObject* capsule) {
  delete_unused<dlpack::ManagedTensor>(capsule, dlpack::kCapsule);
}

void delete_unused_versioned(PyObject* capsule) {
  delete_unused<dlpack::ManagedTensorVersioned>(capsule, dlpack::kVersionedCapsule);
}

StridedArea area_of(const View& view) {
  StridedArea area{view.data, static_cast<std::int64_t>(view.item_size()), 0, {}, {}};
  for (int d = 0; d < view.dims; ++d) add_axis(area, view.shape[d], view.strides[d]);
  add_axis(area, 1, area.item_size);  // an area has an axis, an array need not have one
  return area;
}

}  // namespace

std::int64_t DeviceArray::size() const {
  std::int64_t size = 1;
  for (std::int64_t extent : shape) size *= extent;
  return size;
}

std::size_t DeviceArray::bytes() const {
  return static_cast<std::size_t>(size()) * kItemSizes[dtype];
}

DeviceArray new_device_array(int device, DType dtype, int dims, const std::int64_t* shape,
                             cudaStream_t stream, PyObject* stream_owner) {
  DeviceArray array{device, dtype, {shape, shape + dims}, nullptr, stream};
  if (array.size() == 0) return array;
  array.memory = {new_device_memory(array.bytes(), stream).release(),
                  Release{device, stream, Py_XNewRef(stream_owner)}};
  return array;
}

PyObject* stream_owner_of(const DeviceArray& array) {
  const auto* release = std::get_deleter<Release>(array.memory);
  return release ? release->stream_owner : nullptr;
}

void upload(const View& from, const DeviceArray& to) {
  if (to.size() == 0) return;
  const CurrentDevice current(to.device);
  upload(area_of(from), to.data(), to.stream);
}

void download(const DeviceArray& from, void* to) {
  if (from.size() == 0) return;
  const CurrentDevice current(from.device);
  download(from.data(), to, from.bytes(), from.stream);
}

PyObject* to_capsule(const DeviceArray& array, bool versioned) {
  auto exported = std::make_unique<Exported>();
  exported->array = array;
  exported->strides = element_strides(array);
  PyObject* capsule = nullptr;
  if (versioned) {
    exported->versioned.version = {1, 0};
    exported->versioned.flags = 0;
    fill(exported->versioned, exported.get());
    capsule =
        PyCapsule_New(&exported->versioned, dlpack::kVersionedCapsule, delete_unused_versioned);
  } else {
    fill(exported->plain, exported.get());
    capsule = PyCapsule_New(&exported->plain, dlpack::kCapsule, delete_unused_plain);
  }
  if (!capsule) return nullptr;
  exported.release();
  return capsule;
}

void read_device_array(const DeviceArray& array, View& view) {
  view.data = static_cast<char*>(array.data());
  view.device = array.device;
  view.dtype = array.dtype;
  view.is_read_only = false;
  view.set_axes(static_cast<int>(array.shape.size()), array.shape.data(), nullptr,
                static_cast<std::int64_t>(view.item_size()));
}

}  // namespace tensor_ops
