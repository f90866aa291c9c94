// An array argument, of whatever library, as a call sees it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <string>

#include "binding/python/dlpack.h"
#include "binding/python/python.h"
#include "declaration/strided_view.h"
#include "launch/problem.h"

namespace tensor_ops {

constexpr int kHost = -1;  // in the place of a device's index

struct View : StridedView {
  int device;
  bool is_read_only;
};

// The source of an array, which says how its stream is asked for and its like is made.
enum class Source {
  kNumPy,
  kOwn,        // DeviceArray
  kExchange,   // DLPack's C exchange API
  kProtocol,   // DLPack's Python protocol
  kInterface,  // __cuda_array_interface__
};

// A managed tensor that a producer handed out, to be given back.
using Lease = std::shared_ptr<void>;

// As checks/array_checks.h describes it.
struct Array : View {
  PyObject* object = nullptr;  // borrowed; null where not given
  bool is_output = false;
  Source source;
  const dlpack::ExchangeAPI* api = nullptr;  // of kExchange
  // The array's memory is ready on this stream, where that is known: the call's stream waits for
  // it.
  cudaStream_t stream = nullptr;
  bool has_stream = false;
  Lease lease;

  bool is_given() const { return object != nullptr; }
  bool is_numpy() const { return source == Source::kNumPy; }
};

// The problem with lengths that no array in memory has, as "has a negative length: (-1,)". Empty
// for all others.
std::string problem_of_lengths(int dims, const std::int64_t* lengths, std::int64_t item_size);

// All of a view but its device. Throws ValueError.
void read_tensor(const char* op, const char* name, const dlpack::DLTensor& tensor, View& view);

// "float32" or "int64"; "on cuda:0" or "in host memory".
std::string dtype_text(const Array& array);
std::string device_text(int device);

}  // namespace tensor_ops
