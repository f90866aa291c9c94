#include "arrays/foreign.h"

#include <algorithm>
#include <string>
#include <utility>

#include "declaration/errors.h"

namespace tensor_ops {
namespace {

Name torch("torch"), forward_ad("torch.autograd.forward_ad"), graph("torch.autograd.graph");
Name exchange_attribute(dlpack::kExchangeAttribute), requires_grad("requires_grad");
Name is_neg("is_neg"), is_grad_enabled("is_grad_enabled"), current_level("_current_level");
Name unpack_dual("unpack_dual"), tangent("tangent"), increment_version("increment_version");

// Null where the object has no such attribute. Any other error is the caller's business.
Owned attribute_of(PyObject* object, const Name& name) {
  Owned value(PyObject_GetAttr(object, name.get()));
  if (value) return value;
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw PythonError();
  PyErr_Clear();
  return {};
}

bool is_true(const Owned& value) {
  const int truth = value ? PyObject_IsTrue(value.get()) : -1;
  if (truth < 0) throw PythonError();
  return truth != 0;
}

// PyTorch's, of the thread.
bool are_gradients_recorded() {
  const Owned module = imported_module(torch.get());
  return !module || is_true(Owned(PyObject_CallMethodNoArgs(module.get(), is_grad_enabled.get())));
}

bool has_tangent(PyObject* object) {
  const Owned module = imported_module(forward_ad.get());
  if (!module) return false;
  const Owned dual(PyObject_CallMethodOneArg(module.get(), unpack_dual.get(), object));
  if (!dual) throw PythonError();
  const Owned found = attribute_of(dual.get(), tangent);
  return found && found.get() != Py_None;
}

// What views of no memory point to; NumPy would allocate memory in the place of a null pointer.
char nothing;

constexpr int kTypeNumbers[kDTypes] = {NPY_FLOAT, NPY_HALF, NPY_USHORT, NPY_DOUBLE};

Owned new_view(const char* op, const char* name, const dlpack::DLTensor& tensor, DType dtype) {
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

bool is_empty(const dlpack::DLTensor& tensor) {
  return std::any_of(tensor.shape, tensor.shape + tensor.ndim,
                     [](std::int64_t length) { return length == 0; });
}

}  // namespace

const dlpack::ExchangeAPI* exchange_api(PyTypeObject* type) {
  const Owned capsule = attribute_of(reinterpret_cast<PyObject*>(type), exchange_attribute);
  const dlpack::ExchangeAPI* api = capsule ? dlpack::exchange_api(capsule.get()) : nullptr;
  const bool is_whole = api && api->allocate && api->managed_from_object &&
                        api->managed_to_object && api->tensor_from_object;
  return is_whole ? api : nullptr;
}

bool are_tangents_tracked() {
  const Owned module = imported_module(forward_ad.get());
  const Owned current = module ? attribute_of(module.get(), current_level) : Owned();
  if (!current || !PyLong_Check(current.get())) return false;
  const long value = PyLong_AsLong(current.get());
  if (value == -1 && PyErr_Occurred()) throw PythonError();
  return value >= 0;
}

void require_all_in_memory(const char* op, const char* name, PyObject* object, bool is_output,
                           bool has_tangents) {
  const Owned needed = attribute_of(object, requires_grad);
  if (!needed) return;  // no tensor of PyTorch
  if (is_true(needed) && are_gradients_recorded())
    throw ValueError(text(op, ": ", name,
                          " requires grad, and tensor_ops_cpp computes no gradients; pass ", name,
                          ".detach(), or call in torch.no_grad()"));
  if (has_tangents && has_tangent(object))
    throw ValueError(text(op, ": ", name,
                          " has a tangent, and tensor_ops_cpp computes no derivatives; pass ", name,
                          ".detach()"));
  // Such a view is handed out with the signs that are in memory.
  if (is_true(Owned(PyObject_CallMethodNoArgs(object, is_neg.get()))))
    throw ValueError(
        text(op, ": ", name, " is a view that negates lazily; ",
             is_output ? "give another tensor" : text("pass ", name, ".resolve_neg()")));
}

Owned view_of_foreign(const char* op, const char* name, const dlpack::ExchangeAPI& api,
                      Array& array) {
  dlpack::DLTensor tensor;
  if (api.tensor_from_object(array.object, &tensor) != 0)  // such as a sparse one
    throw TypeError(
        text(op, ": ", name, " cannot be seen as an array in host memory: ", take_error_text()));
  if (tensor.device.type != dlpack::kCPU && tensor.device.type != dlpack::kCUDAHost)
    throw ValueError(text(op, ": ", name, " is not in host memory, where tensor_ops_cpp computes; ",
                          array.is_output ? "give an array that is" : "move it there",
                          ", or call tensor_ops.", op, ", which finds a backend for its device"));
  // Such as PyTorch's fake tensors, which have shapes alone.
  if (!tensor.data && !is_empty(tensor))
    throw TypeError(
        text(op, ": ", name, " is a ", type_name(array.object), " without memory of its own"));
  if (tensor.ndim > NPY_MAXDIMS)
    throw ValueError(
        text(op, ": ", name, " has ", tensor.ndim, " axes; the most are ", NPY_MAXDIMS));
  array.dtype = dlpack::dtype_of(tensor.dtype);
  if (array.dtype == kDTypes)
    throw TypeError(text(op, ": ", name, " has dtype ", dtype_attribute_text(array.object),
                         "; the supported dtypes are ", kSupportedDTypes,
                         array.is_output ? "" : "; convert it first"));
  return new_view(op, name, tensor, array.dtype);
}

bool is_read_only_foreign(PyObject* object, const dlpack::ExchangeAPI& api) {
  dlpack::ManagedTensorVersioned* managed = nullptr;
  if (api.managed_from_object(object, &managed) != 0) throw PythonError();
  return dlpack::OwnedTensor(managed)->flags & dlpack::kReadOnly;
}

void note_written(PyObject* object) {
  const Owned module(PyImport_GetModule(graph.get()));
  const Owned done(module ? PyObject_CallMethodOneArg(module.get(), increment_version.get(), object)
                          : nullptr);
  // Not every array has a version: those of other libraries, and tensors made for inference.
  if (!done) PyErr_Clear();
}

ForeignResult::ForeignResult(const char* op, const Array& like, const dlpack::ExchangeAPI& api)
    : api_(&api),
      tensor_(dlpack::allocate(op, api, {dlpack::kCPU, 0}, like.dtype, like.dims, like.shape)),
      view_(new_view(op, "the result", tensor_->tensor, like.dtype)) {}

Owned ForeignResult::release() { return dlpack::to_object(*api_, std::move(tensor_)); }

}  // namespace tensor_ops
