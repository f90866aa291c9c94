#include "binding/python/host_arrays.h"

#include <algorithm>

#include "declaration/errors.h"
#include "python/backend.h"

namespace tensor_ops {
namespace {

// Names of attributes, methods and modules.
namespace words {
Module torch("torch"), forward_ad("torch.autograd.forward_ad");
Name exchange(dlpack::kExchangeAttribute), requires_grad("requires_grad");
Name is_neg("is_neg"), is_grad_enabled("is_grad_enabled"), current_level("_current_level");
Name unpack_dual("unpack_dual"), tangent("tangent");
}  // namespace words

// Null where the object has no such attribute. Any other error is the caller's business.
Owned found_attribute(PyObject* object, const Name& name) {
  Owned value(PyObject_GetAttr(object, name.get()));
  if (value) return value;
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw PythonError();
  PyErr_Clear();
  return {};
}

bool truth_of(const Owned& value) {
  const int truth = value ? PyObject_IsTrue(value.get()) : -1;
  if (truth < 0) throw PythonError();
  return truth != 0;
}

// PyTorch's, of the thread.
bool does_torch_record_gradients() {
  PyObject* module = words::torch.get();
  return !module || truth_of(call_method(module, words::is_grad_enabled.get()));
}

bool has_tangent(PyObject* object) {
  PyObject* module = words::forward_ad.get();
  if (!module) return false;
  const Owned dual = call_method(module, words::unpack_dual.get(), object);
  if (!dual) throw PythonError();
  const Owned found = found_attribute(dual.get(), words::tangent);
  return found && found.get() != Py_None;
}

// The address of views of no memory; NumPy would allocate memory in the place of a null pointer.
char nothing;

constexpr int kTypeNumbers[kDTypes] = {NPY_FLOAT, NPY_HALF, NPY_USHORT, NPY_DOUBLE};

bool is_empty(const dlpack::DLTensor& tensor) {
  return std::any_of(tensor.shape, tensor.shape + tensor.ndim,
                     [](std::int64_t length) { return length == 0; });
}

}  // namespace

const dlpack::ExchangeAPI* exchange_api(PyTypeObject* type) {
  const Owned capsule = found_attribute(reinterpret_cast<PyObject*>(type), words::exchange);
  const dlpack::ExchangeAPI* api = capsule ? dlpack::exchange_api(capsule.get()) : nullptr;
  const bool is_whole = api && api->allocate && api->managed_from_object &&
                        api->managed_to_object && api->tensor_from_object;
  return is_whole ? api : nullptr;
}

bool are_tangents_tracked() {
  PyObject* module = words::forward_ad.get();
  const Owned current = module ? found_attribute(module, words::current_level) : Owned();
  if (!current || !PyLong_Check(current.get())) return false;
  const long value = PyLong_AsLong(current.get());
  if (value == -1 && PyErr_Occurred()) throw PythonError();
  return value >= 0;
}

void require_all_in_memory(const char* op, const char* name, PyObject* object, bool is_output,
                           bool has_tangents) {
  const Owned needed = found_attribute(object, words::requires_grad);
  if (!needed) return;  // no tensor of PyTorch
  if (truth_of(needed) && does_torch_record_gradients())
    throw ValueError(text(op, ": ", name, " requires grad, and ", kModule,
                          " computes no gradients; pass ", name,
                          ".detach(), or call in torch.no_grad()"));
  if (has_tangents && has_tangent(object))
    throw ValueError(text(op, ": ", name, " has a tangent, and ", kModule,
                          " computes no derivatives; pass ", name, ".detach()"));
  // Such a view is handed out with the signs that are in memory.
  if (truth_of(call_method(object, words::is_neg.get())))
    throw ValueError(
        text(op, ": ", name, " is a view that negates lazily; ",
             is_output ? "give another tensor" : text("pass ", name, ".resolve_neg()")));
}

dlpack::DLTensor tensor_of(const char* op, const char* name, const dlpack::ExchangeAPI& api,
                           PyObject* object) {
  dlpack::DLTensor tensor;
  if (api.tensor_from_object(object, &tensor) != 0)  // such as a sparse one
    throw TypeError(
        text(op, ": ", name, " cannot be seen as an array in host memory: ", take_error_text()));
  return tensor;
}

bool is_in_host_memory(const dlpack::DLTensor& tensor) {
  return tensor.device.type == dlpack::kCPU || tensor.device.type == dlpack::kCUDAHost;
}

DType dtype_in_memory(const char* op, const char* name, PyObject* object, bool is_output,
                      const dlpack::DLTensor& tensor) {
  // Such as PyTorch's fake tensors, which have shapes alone.
  if (!tensor.data && !is_empty(tensor))
    throw TypeError(
        text(op, ": ", name, " is a ", type_name(object), " without memory of its own"));
  if (tensor.ndim > NPY_MAXDIMS)
    throw ValueError(
        text(op, ": ", name, " has ", tensor.ndim, " axes; the most are ", NPY_MAXDIMS));
  const DType dtype = dlpack::dtype_of(tensor.dtype);
  if (dtype == kDTypes)
    throw TypeError(text(op, ": ", name, " has dtype ", dtype_attribute_text(object),
                         "; the supported dtypes are ", kSupportedDTypes,
                         is_output ? "" : "; convert it first"));
  return dtype;
}

Owned view_of_host_array(const char* op, const char* name, PyObject* object, bool is_output,
                         const dlpack::DLTensor& tensor) {
  const DType dtype = dtype_in_memory(op, name, object, is_output, tensor);
  npy_intp shape[NPY_MAXDIMS], strides[NPY_MAXDIMS];
  const auto item = static_cast<npy_intp>(kItemSizes[dtype]);
  npy_intp step = item;
  for (int d = tensor.ndim - 1; d >= 0; --d) {
    shape[d] = static_cast<npy_intp>(tensor.shape[d]);
    strides[d] = tensor.strides ? static_cast<npy_intp>(tensor.strides[d]) * item : step;
    step *= shape[d];
  }
  void* data = tensor.data ? static_cast<char*>(tensor.data) + tensor.byte_offset : &nothing;
  Owned view(PyArray_NewFromDescr(&PyArray_Type, PyArray_DescrFromType(kTypeNumbers[dtype]),
                                  tensor.ndim, shape, strides, data, NPY_ARRAY_WRITEABLE, nullptr));
  if (view) return view;
  if (PyErr_ExceptionMatches(PyExc_MemoryError)) throw PythonError();
  throw ValueError(text(op, ": ", name, " cannot be seen as an array: ", take_error_text()));
}

}  // namespace tensor_ops
