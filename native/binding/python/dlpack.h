// The binary interface of DLPack 1.2, with the C exchange API, as dmlc/dlpack's dlpack.h declares
// it.
#pragma once

#include <cstdint>
#include <memory>

#include "binding/python/python.h"
#include "declaration/dtype.h"

namespace tensor_ops::dlpack {

enum DeviceType : std::int32_t { kCPU = 1, kCUDA = 2, kCUDAHost = 3, kCUDAManaged = 13 };
enum TypeCode : std::uint8_t {
  kInt = 0,
  kUInt = 1,
  kFloat = 2,
  kBfloat = 4,
  kComplex = 5,
  kBool = 6
};

struct Version {
  std::uint32_t major, minor;
};
constexpr Version kVersion{1, 2};
struct Device {
  DeviceType type;
  std::int32_t id;
};
struct DataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct DLTensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null, before DLPack 1.2: C-contiguous
  std::uint64_t byte_offset;
};

struct ManagedTensor {
  DLTensor tensor;
  void* context;
  void (*deleter)(ManagedTensor*);
};

constexpr std::uint64_t kReadOnly = 1;

struct ManagedTensorVersioned {
  Version version;
  void* context;
  void (*deleter)(ManagedTensorVersioned*);
  std::uint64_t flags;
  DLTensor tensor;
};

// Gives a tensor back to its producer.
struct GiveBack {
  template <class Managed>
  void operator()(Managed* tensor) const {
    if (tensor->deleter) tensor->deleter(tensor);
  }
};
using OwnedTensor = std::unique_ptr<ManagedTensorVersioned, GiveBack>;

using SetError = void (*)(void* context, const char* kind, const char* message);

struct ExchangeHeader {
  Version version;
  const ExchangeHeader* previous;
};
// Functions return 0, or -1 with a Python exception set; the allocator reports by set_error.
struct ExchangeAPI {
  ExchangeHeader header;
  int (*allocate)(DLTensor* prototype, ManagedTensorVersioned** out, void* context,
                  SetError set_error);
  int (*managed_from_object)(void* object, ManagedTensorVersioned** out);
  int (*managed_to_object)(ManagedTensorVersioned* tensor, void** out);
  int (*tensor_from_object)(void* object, DLTensor* out);  // may be null
  int (*current_stream)(DeviceType type, std::int32_t id, void** out);
};

inline constexpr char kExchangeAttribute[] = "__dlpack_c_exchange_api__";
inline constexpr char kExchangeCapsule[] = "dlpack_exchange_api";
inline constexpr char kCapsule[] = "dltensor", kUsedCapsule[] = "used_dltensor";
inline constexpr char kVersionedCapsule[] = "dltensor_versioned",
                      kUsedVersionedCapsule[] = "used_dltensor_versioned";

// kDTypes for an unsupported one.
DType dtype_of(DataType dtype);
DataType data_type(DType dtype);

// The exchange API in a type's attribute; null where there is none of version 1.
const ExchangeAPI* exchange_api(PyObject* capsule);

// A new tensor from a library's allocator: C-contiguous and not initialised. Throws MemoryError,
// Error or PythonError, naming the op.
OwnedTensor allocate(const char* op, const ExchangeAPI& api, Device device, DType dtype, int dims,
                     const npy_intp* shape);

// The array that a library makes of a tensor. Throws PythonError.
Owned to_object(const ExchangeAPI& api, OwnedTensor tensor);

}  // namespace tensor_ops::dlpack
