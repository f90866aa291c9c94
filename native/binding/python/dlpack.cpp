#include "binding/python/dlpack.h"

#include "declaration/errors.h"

namespace tensor_ops::dlpack {
namespace {

// The error that the exchange API's allocator reports.
struct AllocatorError {
  std::string kind = "RuntimeError", message = "no reason given";

  static void set(void* context, const char* kind, const char* message) {
    auto* error = static_cast<AllocatorError*>(context);
    error->kind = kind ? kind : "";
    error->message = message ? message : "";
  }
  [[noreturn]] void raise(const char* op) const {
    if (PyErr_Occurred()) throw PythonError();
    const std::string whole =
        text(op, ": no result could be allocated: ", message.substr(0, message.find('\n')));
    if (kind == "MemoryError") throw MemoryError(whole);
    throw Error(whole);
  }
};

}  // namespace

DType dtype_of(DataType dtype) {
  if (dtype.lanes != 1) return kDTypes;
  if (dtype.code == kBfloat) return dtype.bits == 16 ? kBFloat16 : kDTypes;
  if (dtype.code != kFloat) return kDTypes;
  return dtype.bits == 32   ? kFloat32
         : dtype.bits == 16 ? kFloat16
         : dtype.bits == 64 ? kFloat64
                            : kDTypes;
}

DataType data_type(DType dtype) {
  return {dtype == kBFloat16 ? kBfloat : kFloat, static_cast<std::uint8_t>(8 * kItemSizes[dtype]),
          1};
}

const ExchangeAPI* exchange_api(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, kExchangeCapsule)) return nullptr;
  const auto* header =
      static_cast<const ExchangeHeader*>(PyCapsule_GetPointer(capsule, kExchangeCapsule));
  while (header && header->version.major > 1) header = header->previous;
  return header && header->version.major == 1 ? reinterpret_cast<const ExchangeAPI*>(header)
                                              : nullptr;
}

OwnedTensor allocate(const char* op, const ExchangeAPI& api, Device device, DType dtype, int dims,
                     const npy_intp* shape) {
  std::int64_t lengths[NPY_MAXDIMS], strides[NPY_MAXDIMS], step = 1;
  for (int d = dims - 1; d >= 0; --d) {
    lengths[d] = shape[d];
    strides[d] = step;
    step *= shape[d];
  }
  DLTensor prototype{nullptr, device, dims, data_type(dtype), lengths, strides, 0};
  ManagedTensorVersioned* tensor = nullptr;
  AllocatorError error;
  if (api.allocate(&prototype, &tensor, &error, AllocatorError::set) != 0) error.raise(op);
  return OwnedTensor(tensor);
}

Owned to_object(const ExchangeAPI& api, OwnedTensor tensor) {
  void* object = nullptr;
  if (api.managed_to_object(tensor.release(), &object) != 0) throw PythonError();
  return Owned(static_cast<PyObject*>(object));
}

}  // namespace tensor_ops::dlpack
