#include "arrays/results.h"

#include <cstring>

#include "binding/python/dtypes.h"
#include "declaration/errors.h"
#include "launch/pinned_pool.h"

namespace tensor_ops {
namespace {

// Smaller results cost less to copy out of pinned memory than to keep track of.
constexpr std::size_t kLeastPinned = 64 * 1024;

void give_back_memory(PyObject* capsule) {
  give_back_pinned(PyCapsule_GetPointer(capsule, nullptr));
}

// The dtype of `like`, which may be one that only its library knows, or float32.
PyArray_Descr* new_descr(PyArrayObject* like, DType dtype) {
  if (dtype_of(PyArray_DESCR(like)) != dtype) return PyArray_DescrFromType(NPY_FLOAT);
  PyArray_Descr* descr = PyArray_DESCR(like);
  Py_INCREF(reinterpret_cast<PyObject*>(descr));
  return descr;
}

Owned new_array(PyArrayObject* like, DType dtype, void* data) {
  PyArray_Descr* descr = new_descr(like, dtype);
  if (!descr) throw PythonError();
  Owned array(PyArray_NewFromDescr(&PyArray_Type, descr, PyArray_NDIM(like), PyArray_DIMS(like),
                                   nullptr, data, data ? NPY_ARRAY_CARRAY : 0, nullptr));
  if (!array) throw PythonError();
  return array;
}

// None where no memory can be pinned.
Owned new_pinned_array(PyArrayObject* like, DType dtype, std::size_t bytes) {
  void* data = take_pinned(bytes);
  if (!data) return {};
  Owned capsule(PyCapsule_New(data, nullptr, give_back_memory));
  if (!capsule) {
    give_back_pinned(data);
    throw PythonError();
  }
  Owned array = new_array(like, dtype, data);
  auto* base = reinterpret_cast<PyArrayObject*>(array.get());
  if (PyArray_SetBaseObject(base, capsule.release()) != 0) throw PythonError();
  return array;
}

// The result as the caller's library has it, or as it is where that takes none.
Owned as_library_has_it(const Array& x, Owned own) {
  const Owned space(PyObject_HasAttrString(x.object, "__array_namespace__")
                        ? PyObject_CallMethod(x.object, "__array_namespace__", nullptr)
                        : nullptr);
  Owned from_dlpack;
  if (space) from_dlpack = Owned(PyObject_GetAttrString(space.get(), "from_dlpack"));
  if (!from_dlpack) {
    PyErr_Clear();
    const Owned name(PyUnicode_FromString(facts_of(x.object).package.c_str()));
    const Owned module(name ? PyImport_GetModule(name.get()) : nullptr);
    if (module) from_dlpack = Owned(PyObject_GetAttrString(module.get(), "from_dlpack"));
  }
  if (!from_dlpack) {
    PyErr_Clear();
    return own;
  }
  Owned result(PyObject_CallFunctionObjArgs(from_dlpack.get(), own.get(), nullptr));
  if (!result) throw PythonError();
  return result;
}

// Numba's function, which by itself would wait for the array's stream.
Owned as_numba_has_it(Owned own) {
  const Owned name(PyUnicode_FromString("numba.cuda"));
  const Owned module(name ? PyImport_GetModule(name.get()) : nullptr);
  const Owned function(module ? PyObject_GetAttrString(module.get(), "as_cuda_array") : nullptr);
  if (!function) {
    PyErr_Clear();
    return own;
  }
  const Owned arguments(PyTuple_Pack(1, own.get())),
      keywords(Py_BuildValue("{s:O}", "sync", Py_False));
  if (!arguments || !keywords) throw PythonError();
  Owned result(PyObject_Call(function.get(), arguments.get(), keywords.get()));
  if (!result) throw PythonError();
  return result;
}

}  // namespace

void Result::allocate(const char* op, const Array& x, DType dtype, const ArrayReader& place,
                      View& view) {
  if (place.is_host()) return allocate_on_host(x, dtype, view);
  if (x.source == Source::kExchange) return allocate_by_exchange(op, x, dtype, view);
  own_ = new_device_array(place.device(), dtype, x.dims, x.shape, place.stream(),
                          place.stream_owner());
  read_device_array(own_, view);
}

void Result::allocate_on_host(const Array& x, DType dtype, View& view) {
  auto* like = reinterpret_cast<PyArrayObject*>(x.object);
  const std::size_t bytes = x.size() * kItemSizes[dtype];
  if (bytes >= kLeastPinned) object_ = new_pinned_array(like, dtype, bytes);
  if (!object_) object_ = new_array(like, dtype, nullptr);
  PyArrayObject* array = object_.array();
  view.data = PyArray_BYTES(array);
  view.dtype = dtype;
  view.set_axes(x.dims, x.shape, PyArray_STRIDES(array), 1);
}

void Result::allocate_by_exchange(const char* op, const Array& x, DType dtype, View& view) {
  tensor_ = dlpack::allocate(op, *x.api, {dlpack::kCUDA, x.device}, dtype, x.dims, x.shape);
  read_tensor(op, "the result", tensor_->tensor, view);
}

Owned Result::object(const Array& x) {
  if (object_) return std::move(object_);
  if (tensor_) return dlpack::to_object(*x.api, std::move(tensor_));
  Owned own(to_object(std::move(own_)));
  if (x.source == Source::kProtocol) return as_library_has_it(x, std::move(own));
  if (x.source == Source::kInterface && facts_of(x.object).package == "numba")
    return as_numba_has_it(std::move(own));
  return own;
}

}  // namespace tensor_ops
