#include "python/device_array.h"

#include "arrays/device_array.h"
#include "arrays/readers.h"
#include "declaration/errors.h"
#include "launch/device.h"
#include "launch/streams.h"
#include "python/host_device.h"

namespace nb = nanobind;

namespace tensor_ops {
namespace {

PyTypeObject* the_type = nullptr;

nb::object numpy_dtype(DType dtype) {
  const nb::object make = nb::module_::import_("numpy").attr("dtype");
  if (dtype != kBFloat16) return make(kDTypeNames[dtype]);
  return make(nb::module_::import_("ml_dtypes").attr("bfloat16"));
}

nb::tuple shape_of(const DeviceArray& array) { return nb::tuple(nb::cast(array.shape)); }

nb::tuple strides_of(const DeviceArray& array) {
  View view;
  read_device_array(array, view);
  nb::list strides;
  for (int d = 0; d < view.dims; ++d) strides.append(view.strides[d]);
  return nb::tuple(strides);
}

std::string device_name(const DeviceArray& array) { return text("cuda:", array.device); }

std::string repr(const DeviceArray& array) {
  return text(
      "DeviceArray(shape=", shape_text(static_cast<int>(array.shape.size()), array.shape.data()),
      ", dtype=", kDTypeNames[array.dtype], ", device='", device_name(array), "')");
}

std::int64_t length(const DeviceArray& array) {
  if (array.shape.empty()) throw TypeError("len() of a DeviceArray without axes");
  return array.shape[0];
}

nb::object to_numpy(const DeviceArray& array) {
  const nb::object result =
      nb::module_::import_("numpy").attr("empty")(shape_of(array), numpy_dtype(array.dtype));
  void* data = PyArray_DATA(reinterpret_cast<PyArrayObject*>(result.ptr()));
  const ReleasedGil released;
  download(array, data);
  return result;
}

cudaStream_t stream_numbered(const nb::object& number, const char* where) {
  if (!nb::isinstance<nb::int_>(number) || nb::isinstance<nb::bool_>(number))
    throw TypeError(text(where,
                         ": stream must be an int, the address of a cudaStream_t, or an object "
                         "with __cuda_stream__, got ",
                         type_name(number.ptr())));
  const auto value = nb::cast<long long>(number);
  if (value <= 0)
    throw ValueError(text(where, ": stream is ", value,
                          "; 1 is the default stream, 2 the thread's, and anything else the "
                          "address of a cudaStream_t"));
  return reinterpret_cast<cudaStream_t>(static_cast<std::intptr_t>(value));
}

// The stream of an object with the protocol of cuda.core, which gives (version, address).
cudaStream_t stream_of_object(const nb::object& object, const char* where) {
  const nb::object answer = object.attr("__cuda_stream__")();
  const bool is_known = nb::isinstance<nb::tuple>(answer) && nb::len(answer) == 2 &&
                        nb::isinstance<nb::int_>(nb::object(answer[0])) &&
                        nb::object(answer[0]).equal(nb::int_(0));
  if (!is_known)
    throw TypeError(text(where, ": __cuda_stream__ of ", type_name(object.ptr()),
                         " must return (0, address), got ", repr_text(answer.ptr())));
  const nb::object address = answer[1];
  return address.equal(nb::int_(0)) ? cudaStreamLegacy : stream_numbered(address, where);
}

void require_own_device(const DeviceArray& array, const nb::object& dl_device) {
  if (dl_device.is_none()) return;
  const nb::tuple wanted(dl_device);
  const auto number = [&](int i) { return nb::cast<int>(nb::int_(nb::object(wanted[i]))); };
  if (number(0) != dlpack::kCUDA || number(1) != array.device)
    throw nb::buffer_error(text("a DeviceArray is exported to its own device, ", device_name(array),
                                "; use numpy() for host memory")
                               .c_str());
}

// The consumer's stream waits for the array; without a stream, the default one does.
nb::object dlpack_capsule(const DeviceArray& array, const nb::object& stream,
                          const nb::object& max_version, const nb::object& dl_device,
                          const nb::object& copy) {
  require_own_device(array, dl_device);
  if (!copy.is_none() && PyObject_IsTrue(copy.ptr()) == 1)
    throw nb::buffer_error("a DeviceArray is exported without a copy; pass copy=None");
  const bool waits = stream.is_none() || !stream.equal(nb::int_(-1));
  if (waits) {
    const CurrentDevice current(array.device);
    order_after(stream.is_none() ? cudaStreamLegacy : stream_numbered(stream, "__dlpack__"),
                array.stream);
  }
  const bool versioned = !max_version.is_none() && nb::cast<int>(nb::tuple(max_version)[0]) >= 1;
  PyObject* capsule = to_capsule(array, versioned);
  return object_of(Owned(capsule));
}

nb::dict cuda_array_interface(const DeviceArray& array) {
  if (array.dtype == kBFloat16)
    throw nb::attribute_error("__cuda_array_interface__ has no bfloat16; use DLPack");
  nb::dict result;
  result["shape"] = shape_of(array);
  result["typestr"] = numpy_dtype(array.dtype).attr("str");
  result["data"] = nb::make_tuple(reinterpret_cast<std::uintptr_t>(array.data()), false);
  result["strides"] = nb::none();
  const auto number = reinterpret_cast<std::uintptr_t>(array.stream);
  result["stream"] = number ? number : 1;
  result["version"] = 3;
  return result;
}

int device_index(const nb::object& device) {
  if (device.is_none()) return chosen_host_device();
  if (nb::isinstance<nb::str>(device)) {
    const std::string name = text_of(device);
    if (name == "cuda") return chosen_host_device();
    if (name.size() == 6 && name.compare(0, 5, "cuda:") == 0 && name[5] >= '0' && name[5] <= '9')
      return name[5] - '0';
    throw ValueError(text("to_device: device is '", name, "'; it must be like 'cuda:0'"));
  }
  if (!nb::isinstance<nb::int_>(device) || nb::isinstance<nb::bool_>(device))
    throw TypeError(text("to_device: device must be an int or a str like 'cuda:0', got ",
                         type_name(device.ptr())));
  return nb::cast<int>(device);
}

DeviceArray to_device(const nb::object& array, const nb::object& device, const nb::object& stream) {
  if (!PyArray_Check(array.ptr()))
    throw TypeError(text("to_device: array must be a numpy.ndarray, got ", type_name(array.ptr())));
  Array read;
  read.object = array.ptr();
  read.source = Source::kNumPy;
  read_numpy("to_device", "array", read);
  if (read.dtype == kDTypes)
    throw TypeError(text("to_device: array has dtype ", dtype_text(read),
                         "; the supported dtypes are ", kSupportedDTypes));
  const int index = device_index(device);
  usable_device(index);
  const CurrentDevice current(index);
  PyObject* owner = nb::hasattr(stream, "__cuda_stream__") ? stream.ptr() : nullptr;
  const cudaStream_t handle = stream.is_none() ? own_stream(index)
                              : owner          ? stream_of_object(stream, "to_device")
                                               : stream_numbered(stream, "to_device");
  DeviceArray result = new_device_array(index, read.dtype, read.dims, read.shape, handle, owner);
  const ReleasedGil released;
  upload(read, result);
  return result;
}

constexpr char kClassDoc[] = R"(An array in the memory of a CUDA device.

Made by `to_device`, and by the ops from arrays of its kind. It speaks DLPack and
``__cuda_array_interface__``, so that other libraries take it without a copy. C-contiguous.

Examples
--------
>>> import numpy as np
>>> import tensor_ops_cuda
>>> x = tensor_ops_cuda.to_device(np.zeros((2, 4), np.float32))
>>> x
DeviceArray(shape=(2, 4), dtype=float32, device='cuda:0')
>>> tensor_ops_cuda.silu(x).numpy().sum()
np.float32(0.0)
)";

constexpr char kToDeviceDoc[] = R"(Copy a NumPy array to a device.

Parameters
----------
array : numpy.ndarray
    Of float32, float16, bfloat16 or float64, and any strides.
device : int or str, optional
    Index, or a name like ``"cuda:0"``. By default what ``TENSOR_OPS_CUDA_DEVICE`` says, else the
    current device.
stream : int or object with ``__cuda_stream__``, optional
    What the copy, and ops on it, run on: a stream of ``cuda.core``, or the address of a
    ``cudaStream_t``, which must live as long as the array; 1 is the default stream. By default one
    of this module's own.

Returns
-------
DeviceArray
    C-contiguous. The copy is done.

Examples
--------
>>> import numpy as np
>>> import tensor_ops_cuda
>>> tensor_ops_cuda.to_device(np.zeros(3, np.float16))
DeviceArray(shape=(3,), dtype=float16, device='cuda:0')
)";

}  // namespace

bool is_device_array_type(PyTypeObject* type) { return type == the_type; }

const DeviceArray& device_array_of(PyObject* object) { return *nb::inst_ptr<DeviceArray>(object); }

PyObject* to_object(DeviceArray array) {
  try {
    return nb::cast(std::move(array)).release().ptr();
  } catch (nb::python_error& error) {
    error.restore();
    throw PythonError();
  }
}

void add_device_array(nb::module_& module) {
  const auto type =
      nb::class_<DeviceArray>(module, "DeviceArray", kClassDoc, nb::is_final())
          .def_prop_ro("shape", shape_of, "The lengths of the axes.")
          .def_prop_ro("strides", strides_of, "The bytes from one element to the next.")
          .def_prop_ro(
              "dtype", [](const DeviceArray& array) { return numpy_dtype(array.dtype); },
              "The NumPy dtype; ``ml_dtypes`` has bfloat16.")
          .def_prop_ro("device", device_name, "The name of the device, like ``cuda:0``.")
          .def_prop_ro(
              "ndim", [](const DeviceArray& array) { return array.shape.size(); },
              "The number of axes.")
          .def_prop_ro("size", &DeviceArray::size, "The number of elements.")
          .def_prop_ro("nbytes", &DeviceArray::bytes, "The bytes of all elements.")
          .def("numpy", to_numpy, "Copy to a NumPy array, which waits for the array's stream.")
          .def("__len__", length)
          .def("__repr__", repr)
          .def("__dlpack__", dlpack_capsule, nb::kw_only(), any_argument("stream") = nb::none(),
               any_argument("max_version") = nb::none(), any_argument("dl_device") = nb::none(),
               any_argument("copy") = nb::none())
          .def("__dlpack_device__",
               [](const DeviceArray& array) {
                 return nb::make_tuple(static_cast<int>(dlpack::kCUDA), array.device);
               })
          .def_prop_ro("__cuda_array_interface__", cuda_array_interface);
  the_type = reinterpret_cast<PyTypeObject*>(type.ptr());
  type.attr("__module__") = "tensor_ops_cuda";
  module.def("to_device", to_device, kToDeviceDoc, any_argument("array"), nb::kw_only(),
             any_argument("device") = nb::none(), any_argument("stream") = nb::none());
}

}  // namespace tensor_ops
