// The binary interface of DLPack 1.2, with the C exchange API, as dmlc/dlpack's dlpack.h declares
// it.
#pragma once

#include <cstdint>

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
struct Device {
  DeviceType type;
  std::int32_t id;
};
struct DataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct Tensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null, before DLPack 1.2: C-contiguous
  std::uint64_t byte_offset;
};

constexpr std::uint64_t kReadOnly = 1;

struct ManagedTensorVersioned {
  Version version;
  void* context;
  void (*deleter)(ManagedTensorVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};

using SetError = void (*)(void* context, const char* kind, const char* message);

struct ExchangeHeader {
  Version version;
  const ExchangeHeader* previous;
};
// Functions return 0, or -1 with a Python exception set; the allocator reports by set_error.
struct ExchangeAPI {
  ExchangeHeader header;
  int (*allocate)(Tensor* prototype, ManagedTensorVersioned** out, void* context,
                  SetError set_error);
  int (*managed_from_object)(void* object, ManagedTensorVersioned** out);
  int (*managed_to_object)(ManagedTensorVersioned* tensor, void** out);
  int (*tensor_from_object)(void* object, Tensor* out);  // may be null
  int (*current_stream)(DeviceType type, std::int32_t id, void** out);
};

inline constexpr char kExchangeAttribute[] = "__dlpack_c_exchange_api__";
inline constexpr char kExchangeCapsule[] = "dlpack_exchange_api";

}  // namespace tensor_ops::dlpack
