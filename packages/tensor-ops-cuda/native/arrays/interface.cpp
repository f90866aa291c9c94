// Arrays with __cuda_array_interface__, version 2 or 3.
#include <cstring>

#include "arrays/readers.h"
#include "declaration/errors.h"
#include "launch/device.h"

namespace tensor_ops {
namespace {

// The dict, and the beginning of messages about it.
struct Interface {
  std::string where;
  Owned dict;

  [[noreturn]] void refuse(const char* problem) const { throw TypeError(text(where, problem)); }
  // Null for None too. A strong reference: the dict may be one that other threads change.
  Owned find(const char* key) const {
#if PY_VERSION_HEX >= 0x030D0000
    PyObject* found = nullptr;
    if (PyDict_GetItemStringRef(dict.get(), key, &found) < 0) throw PythonError();
    Owned value(found);
#else
    Owned value(Py_XNewRef(PyDict_GetItemString(dict.get(), key)));
#endif
    return value.get() == Py_None ? Owned() : std::move(value);
  }
};

Interface interface_of(const char* op, const char* name, PyObject* object) {
  Interface interface{text(op, ": ", name, "'s __cuda_array_interface__ "),
                      Owned(PyObject_GetAttrString(object, "__cuda_array_interface__"))};
  if (!interface.dict) throw PythonError();
  if (!PyDict_Check(interface.dict.get())) interface.refuse("is no dict");
  if (interface.find("mask")) interface.refuse("has a mask, which is not supported");
  return interface;
}

int read_integers(const Interface& interface, const char* key, PyObject* tuple, std::int64_t* to) {
  if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) > kMaxDims)
    interface.refuse(text("has no tuple of at most ", kMaxDims, " as ", key).c_str());
  const auto count = static_cast<int>(PyTuple_Size(tuple));
  for (int i = 0; i < count; ++i) {
    to[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    if (to[i] == -1 && PyErr_Occurred()) throw PythonError();
  }
  return count;
}

void read_data(const Interface& interface, View& view) {
  const Owned pair = interface.find("data");
  if (!pair || !PyTuple_Check(pair.get()) || PyTuple_Size(pair.get()) != 2)
    interface.refuse("has no (address, read-only flag) as data");
  const auto address = PyLong_AsUnsignedLongLong(PyTuple_GetItem(pair.get(), 0));
  if (PyErr_Occurred()) throw PythonError();
  view.data = reinterpret_cast<char*>(static_cast<std::uintptr_t>(address));
  const int flag = PyObject_IsTrue(PyTuple_GetItem(pair.get(), 1));
  if (flag < 0) throw PythonError();
  view.is_read_only = flag == 1;
}

// Bytes of an element.
std::int64_t read_dtype(const Interface& interface, View& view) {
  const Owned typestr = interface.find("typestr");
  const char* code = typestr && PyUnicode_Check(typestr.get())
                         ? PyUnicode_AsUTF8AndSize(typestr.get(), nullptr)
                         : nullptr;
  if (!code || std::strlen(code) < 3) interface.refuse("has no typestr");
  if (code[0] == '>') interface.refuse("has a typestr that is not in native byte order");
  const std::string kind = code + 1;
  view.dtype = kind == "f4"   ? kFloat32
               : kind == "f2" ? kFloat16
               : kind == "f8" ? kFloat64
                              : kDTypes;
  return std::atoll(code + 2);
}

void read_axes(const Interface& interface, View& view) {
  std::int64_t lengths[kMaxDims], steps[kMaxDims];
  const Owned shape = interface.find("shape"), strides = interface.find("strides");
  if (!shape) interface.refuse("has no shape");
  const int dims = read_integers(interface, "shape", shape.get(), lengths);
  const std::int64_t item = read_dtype(interface, view);
  const std::string problem = problem_of_lengths(dims, lengths, item);
  if (!problem.empty()) throw ValueError(text(interface.where, "has a shape that ", problem));
  if (strides && read_integers(interface, "strides", strides.get(), steps) != dims)
    interface.refuse("has not as many strides as lengths");
  view.set_axes(dims, lengths, strides ? steps : nullptr, strides ? 1 : item);
}

// Arrays without elements may have no address.
int device_of(const Interface& interface, const View& view) {
  const Residence residence = residence_of(view.data);
  if (view.data && residence.memory == Memory::kHost)
    interface.refuse("has an address that is not in a device's memory");
  return residence.device;
}

void read_stream(const Interface& interface, Array& array) {
  const Owned stream = interface.find("stream");
  if (!stream) return;
  const auto number = PyLong_AsUnsignedLongLong(stream.get());
  if (PyErr_Occurred()) throw PythonError();
  if (number == 0) interface.refuse("has 0 as stream; 1 is the default stream");
  array.stream = reinterpret_cast<cudaStream_t>(static_cast<std::uintptr_t>(number));
  array.has_stream = true;
}

}  // namespace

void read_cuda_interface(const char* op, const char* name, Array& array) {
  const Interface interface = interface_of(op, name, array.object);
  read_data(interface, array);
  read_axes(interface, array);
  array.device = device_of(interface, array);
  read_stream(interface, array);
}

}  // namespace tensor_ops
