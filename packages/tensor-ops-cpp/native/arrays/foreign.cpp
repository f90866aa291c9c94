#include "arrays/foreign.h"

#include <algorithm>
#include <string>

#include "arrays/dtypes.h"
#include "launch/errors.h"

namespace tensor_ops {
namespace {

// A name that attributes are asked for by; made once, and kept.
class Name {
 public:
  explicit Name(const char* text) : object_(PyUnicode_InternFromString(text)) {
    if (!object_) throw PythonError();
  }
  PyObject* get() const { return object_; }

 private:
  PyObject* object_;
};

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

// A module that was imported already; what was not has no tensors.
Owned imported(const Name& name) {
  Owned module(PyImport_GetModule(name.get()));
  if (!module && PyErr_Occurred()) throw PythonError();
  return module;
}

// PyTorch's, of the thread.
bool are_gradients_recorded() {
  static const Name torch("torch"), is_grad_enabled("is_grad_enabled");
  const Owned module = imported(torch);
  return !module || is_true(Owned(PyObject_CallMethodNoArgs(module.get(), is_grad_enabled.get())));
}

bool has_tangent(PyObject* object) {
  static const Name forward_ad("torch.autograd.forward_ad"), unpack("unpack_dual"),
      tangent("tangent");
  const Owned module = imported(forward_ad);
  if (!module) return false;
  const Owned dual(PyObject_CallMethodOneArg(module.get(), unpack.get(), object));
  if (!dual) throw PythonError();
  const Owned found = attribute_of(dual.get(), tangent);
  return found && found.get() != Py_None;
}

constexpr int kTypeNumbers[kDTypes] = {NPY_FLOAT, NPY_HALF, NPY_USHORT, NPY_DOUBLE};

DType dtype_of(dlpack::DataType type) {
  if (type.lanes != 1) return kDTypes;
  if (type.code == dlpack::kBfloat) return type.bits == 16 ? kBFloat16 : kDTypes;
  if (type.code != dlpack::kFloat) return kDTypes;
  return type.bits == 32   ? kFloat32
         : type.bits == 16 ? kFloat16
         : type.bits == 64 ? kFloat64
                           : kDTypes;
}

dlpack::DataType dlpack_dtype(DType dtype) {
  return {dtype == kBFloat16 ? dlpack::kBfloat : dlpack::kFloat,
          static_cast<std::uint8_t>(8 * kItemSizes[dtype]), 1};
}

// "torch.int64", or what the library calls it.
std::string dtype_attribute_text(PyObject* object) {
  const Owned dtype(PyObject_GetAttrString(object, "dtype"));
  const Owned str(dtype ? PyObject_Str(dtype.get()) : nullptr);
  const char* utf8 = str ? PyUnicode_AsUTF8(str.get()) : nullptr;
  if (utf8) return utf8;
  PyErr_Clear();
  return "another dtype";
}

// The first line of what an exception says that is set, and then no more.
std::string take_error_text() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  const Owned owned_type(type), owned_value(value), owned_traceback(traceback);
  const Owned str(value ? PyObject_Str(value) : nullptr);
  const char* utf8 = str ? PyUnicode_AsUTF8(str.get()) : nullptr;
  if (!utf8) PyErr_Clear();
  const std::string whole = utf8 ? utf8 : "no reason given";
  return whole.substr(0, whole.find('\n'));
}

Owned new_view(const Op& op, const char* name, const dlpack::Tensor& tensor, DType dtype) {
  static char nothing;  // NumPy would allocate memory in the place of a null pointer
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
  throw ValueError(text(op.name, ": ", name, " cannot be seen as an array: ", take_error_text()));
}

// What the exchange API's allocator says.
struct AllocatorError {
  std::string kind = "RuntimeError", message = "no reason given";

  static void set(void* context, const char* kind, const char* message) {
    auto* error = static_cast<AllocatorError*>(context);
    error->kind = kind ? kind : "";
    error->message = message ? message : "";
  }
  [[noreturn]] void raise(const Op& op) const {
    if (PyErr_Occurred()) throw PythonError();
    const std::string whole =
        text(op.name, ": no result could be allocated: ", message.substr(0, message.find('\n')));
    if (kind == "MemoryError") throw MemoryError(whole);
    throw std::runtime_error(whole);
  }
};

bool is_empty(const dlpack::Tensor& tensor) {
  return std::any_of(tensor.shape, tensor.shape + tensor.ndim,
                     [](std::int64_t length) { return length == 0; });
}

void give_back(dlpack::ManagedTensorVersioned* tensor) {
  if (tensor && tensor->deleter) tensor->deleter(tensor);
}

}  // namespace

const dlpack::ExchangeAPI* exchange_api(PyTypeObject* type) {
  static const Name attribute(dlpack::kExchangeAttribute);
  const Owned capsule = attribute_of(reinterpret_cast<PyObject*>(type), attribute);
  if (!capsule || !PyCapsule_IsValid(capsule.get(), dlpack::kExchangeCapsule)) return nullptr;
  const auto* header = static_cast<const dlpack::ExchangeHeader*>(
      PyCapsule_GetPointer(capsule.get(), dlpack::kExchangeCapsule));
  while (header && header->version.major > 1) header = header->previous;
  if (!header || header->version.major != 1) return nullptr;
  const auto* api = reinterpret_cast<const dlpack::ExchangeAPI*>(header);
  const bool is_whole = api->allocate && api->managed_from_object && api->managed_to_object &&
                        api->tensor_from_object;
  return is_whole ? api : nullptr;
}

bool are_tangents_tracked() {
  static const Name forward_ad("torch.autograd.forward_ad"), level("_current_level");
  const Owned module = imported(forward_ad);
  const Owned current = module ? attribute_of(module.get(), level) : Owned();
  if (!current || !PyLong_Check(current.get())) return false;
  const long value = PyLong_AsLong(current.get());
  if (value == -1 && PyErr_Occurred()) throw PythonError();
  return value >= 0;
}

void require_all_in_memory(const Op& op, const char* name, Use use, PyObject* object,
                           bool has_tangents) {
  static const Name requires_grad("requires_grad"), is_neg("is_neg");
  const Owned needed = attribute_of(object, requires_grad);
  if (!needed) return;  // no tensor of PyTorch
  if (is_true(needed) && are_gradients_recorded())
    throw ValueError(text(op.name, ": ", name,
                          " requires grad, and tensor_ops_cpp computes no gradients; pass ", name,
                          ".detach(), or call in torch.no_grad()"));
  if (has_tangents && has_tangent(object))
    throw ValueError(text(op.name, ": ", name,
                          " has a tangent, and tensor_ops_cpp computes no derivatives; pass ", name,
                          ".detach()"));
  // Such a view is handed out with the signs that are in memory.
  if (is_true(Owned(PyObject_CallMethodNoArgs(object, is_neg.get()))))
    throw ValueError(
        text(op.name, ": ", name, " is a view that negates lazily; ",
             use == Use::kInput ? text("pass ", name, ".resolve_neg()") : "give another tensor"));
}

Owned view_of_foreign(const Op& op, const char* name, Use use, PyObject* object,
                      const dlpack::ExchangeAPI& api) {
  dlpack::Tensor tensor;
  if (api.tensor_from_object(object, &tensor) != 0)  // such as a sparse one
    throw TypeError(text(op.name, ": ", name,
                         " cannot be seen as an array in host memory: ", take_error_text()));
  if (tensor.device.type != dlpack::kCPU && tensor.device.type != dlpack::kCUDAHost)
    throw ValueError(
        text(op.name, ": ", name, " is not in host memory, where tensor_ops_cpp computes; ",
             use == Use::kInput ? "move it there" : "give an array that is",
             ", or call tensor_ops.", op.name, ", which finds a backend for its device"));
  // Such as PyTorch's fake tensors, which have shapes alone.
  if (!tensor.data && !is_empty(tensor))
    throw TypeError(text(op.name, ": ", name, " is a ", Py_TYPE(object)->tp_name,
                         " without memory of its own"));
  if (tensor.ndim > NPY_MAXDIMS)
    throw ValueError(
        text(op.name, ": ", name, " has ", tensor.ndim, " axes; the most are ", NPY_MAXDIMS));
  const DType dtype = dtype_of(tensor.dtype);
  if (dtype == kDTypes)
    throw TypeError(text(op.name, ": ", name, " has dtype ", dtype_attribute_text(object),
                         "; the supported dtypes are ", kSupportedDTypes,
                         use == Use::kInput ? "; convert it first" : ""));
  return new_view(op, name, tensor, dtype);
}

bool is_read_only_foreign(PyObject* object, const dlpack::ExchangeAPI& api) {
  dlpack::ManagedTensorVersioned* managed = nullptr;
  if (api.managed_from_object(object, &managed) != 0) throw PythonError();
  const bool is_read_only = managed->flags & dlpack::kReadOnly;
  give_back(managed);
  return is_read_only;
}

DType dtype_of_view(PyArrayObject* view) {
  const int* number = std::find(kTypeNumbers, kTypeNumbers + kDTypes, PyArray_TYPE(view));
  return static_cast<DType>(number - kTypeNumbers);
}

void note_written(PyObject* object) {
  static const Name graph("torch.autograd.graph"), increment("increment_version");
  const Owned module(PyImport_GetModule(graph.get()));
  const Owned done(module ? PyObject_CallMethodOneArg(module.get(), increment.get(), object)
                          : nullptr);
  // Not every array has a version: those of other libraries, and tensors made for inference.
  if (!done) PyErr_Clear();
}

ForeignResult::ForeignResult(const Op& op, PyArrayObject* like, const dlpack::ExchangeAPI& api)
    : api_(&api) {
  const DType dtype = dtype_of_view(like);
  const int dims = PyArray_NDIM(like);
  std::int64_t shape[NPY_MAXDIMS], strides[NPY_MAXDIMS], step = 1;
  for (int d = dims - 1; d >= 0; --d) {
    shape[d] = PyArray_DIM(like, d);
    strides[d] = step;
    step *= shape[d];
  }
  dlpack::Tensor prototype{nullptr, {dlpack::kCPU, 0}, dims, dlpack_dtype(dtype),
                           shape,   strides,           0};
  AllocatorError error;
  if (api.allocate(&prototype, &tensor_, &error, AllocatorError::set) != 0) error.raise(op);
  try {
    view_ = new_view(op, "the result", tensor_->tensor, dtype);
  } catch (...) {
    give_back(tensor_);
    throw;
  }
}

ForeignResult::~ForeignResult() { give_back(tensor_); }

Owned ForeignResult::release() {
  void* object = nullptr;
  // The tensor is the function's, whether or not it succeeds.
  if (api_->managed_to_object(std::exchange(tensor_, nullptr), &object) != 0) throw PythonError();
  return Owned(static_cast<PyObject*>(object));
}

}  // namespace tensor_ops
