// Arrays that speak DLPack's Python protocol.
#include "arrays/readers.h"
#include "declaration/errors.h"

namespace tensor_ops {
namespace {

[[noreturn]] void refuse_export(const char* op, const char* name, PyObject* object) {
  if (!PyErr_ExceptionMatches(PyExc_BufferError)) throw PythonError();
  throw TypeError(text(op, ": ", name, ", a ", type_name(object),
                       ", cannot be seen through DLPack: ", take_error_text()));
}

// The number of a stream, which is the address of its handle but for the default streams.
long long stream_number(cudaStream_t stream) {
  const auto number = static_cast<long long>(reinterpret_cast<std::intptr_t>(stream));
  return number ? number : 1;
}

Owned call_dlpack(PyObject* object, cudaStream_t stream, bool versioned) {
  const Owned method(PyObject_GetAttrString(object, "__dlpack__"));
  const Owned no_arguments(PyTuple_New(0));
  const Owned keywords(versioned ? Py_BuildValue("{s:L,s:(ii)}", "stream", stream_number(stream),
                                                 "max_version", 1, 0)
                                 : Py_BuildValue("{s:L}", "stream", stream_number(stream)));
  if (!method || !no_arguments || !keywords) throw PythonError();
  return Owned(PyObject_Call(method.get(), no_arguments.get(), keywords.get()));
}

// Producers from before DLPack 1.0 know no max_version.
Owned ask_for_capsule(const char* op, const char* name, PyObject* object, cudaStream_t stream) {
  Owned capsule = call_dlpack(object, stream, true);
  if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    capsule = call_dlpack(object, stream, false);
  }
  if (!capsule) refuse_export(op, name, object);
  return capsule;
}

template <class Managed>
Managed* take(PyObject* capsule, const char* name, const char* used_name) {
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  if (!managed || PyCapsule_SetName(capsule, used_name) != 0) throw PythonError();
  return managed;
}

Owned attribute(const Owned& object, const char* name) {
  return Owned(object ? PyObject_GetAttrString(object.get(), name) : nullptr);
}

LibraryStream stream_of(Owned stream, const char* handle_name) {
  const Owned handle = attribute(stream, handle_name);
  const auto address = handle ? PyLong_AsLongLong(handle.get()) : 0;
  if (PyErr_Occurred()) throw PythonError();
  return {true, reinterpret_cast<cudaStream_t>(static_cast<std::intptr_t>(address)),
          std::move(stream)};
}

}  // namespace

dlpack::Device protocol_device(const char* op, const char* name, PyObject* object) {
  const Owned pair(PyObject_CallMethod(object, "__dlpack_device__", nullptr));
  if (!pair) throw PythonError();
  // A tuple, which no other thread can change.
  const Owned tuple(PySequence_Tuple(pair.get()));
  if (!tuple) PyErr_Clear();
  if (!tuple || PyTuple_Size(tuple.get()) != 2)
    throw TypeError(text(op, ": ", name, ".__dlpack_device__() returned no pair"));
  long numbers[2];
  for (int i = 0; i < 2; ++i) {
    const Owned number(PyNumber_Long(PyTuple_GetItem(tuple.get(), i)));
    numbers[i] = number ? PyLong_AsLong(number.get()) : -1;
    if (PyErr_Occurred()) throw PythonError();
  }
  return {static_cast<dlpack::DeviceType>(numbers[0]), static_cast<std::int32_t>(numbers[1])};
}

Lease read_capsule(const char* op, const char* name, PyObject* object, cudaStream_t stream,
                   View& view) {
  const Owned capsule = ask_for_capsule(op, name, object, stream);
  if (PyCapsule_IsValid(capsule.get(), dlpack::kCapsule)) {
    auto* managed =
        take<dlpack::ManagedTensor>(capsule.get(), dlpack::kCapsule, dlpack::kUsedCapsule);
    Lease lease(managed, dlpack::GiveBack());
    read_tensor(op, name, managed->tensor, view);
    return lease;
  }
  if (!PyCapsule_IsValid(capsule.get(), dlpack::kVersionedCapsule))
    throw TypeError(text(op, ": ", name, ".__dlpack__() returned no DLPack capsule"));
  auto* managed = take<dlpack::ManagedTensorVersioned>(capsule.get(), dlpack::kVersionedCapsule,
                                                       dlpack::kUsedVersionedCapsule);
  Lease lease(managed, dlpack::GiveBack());
  if (managed->version.major != 1)
    throw TypeError(
        text(op, ": ", name, " comes as DLPack ", managed->version.major, ", expected version 1"));
  read_tensor(op, name, managed->tensor, view);
  view.is_read_only = (managed->flags & dlpack::kReadOnly) != 0;
  return lease;
}

LibraryStream current_stream_of(const std::string& package, int device) {
  if (package != "cupy" && package != "torch") return {};
  const Owned name(PyUnicode_FromString(package.c_str()));
  const Owned module(name ? PyImport_GetModule(name.get()) : nullptr);
  const Owned cuda = attribute(module, "cuda");
  if (!cuda) {
    PyErr_Clear();
    return {};
  }
  if (package == "cupy")
    return stream_of(Owned(PyObject_CallMethod(cuda.get(), "get_current_stream", nullptr)), "ptr");
  return stream_of(Owned(PyObject_CallMethod(cuda.get(), "current_stream", "i", device)),
                   "cuda_stream");
}

}  // namespace tensor_ops
