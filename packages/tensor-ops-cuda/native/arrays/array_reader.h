// Reads the array arguments of a call, and so knows where it runs: on the device that they are on,
// and the stream that they are ready on.
// Tested by packages/tensor-ops-cuda/tests/test_exchange.py.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "arrays/readers.h"
#include "binding/ops/arguments.h"
#include "launch/device.h"

namespace tensor_ops {

class ArrayReader {
 public:
  explicit ArrayReader(const char* op) : op_(op) {}

  // Nothing is asked of arrays before they are read one by one.
  void begin(const Declaration&, const Arguments&) {}

  // The view of an argument, with the call's stream made to wait for it. The first array decides
  // the device and the stream. Throws TypeError, ValueError, CudaError or PythonError.
  void read(const char* name, PyObject* object, Array& array);

  bool is_read_only(const Array& array) const { return array.is_read_only; }
  bool is_host() const { return device_ == kHost; }
  int device() const { return device_; }
  cudaStream_t stream() const { return stream_; }
  PyObject* stream_owner() const { return stream_owner_.get(); }
  // Makes a device current and the call's, if none is yet.
  void take_device(int device);

  // After the call is enqueued: streams that arrays belong to wait for it, and leases of arrays
  // whose streams are unknown are kept until it is done.
  void release(Array* const* arrays, int count);

 private:
  void take_device_of(const char* name, PyObject* object, int device);
  void read_exchange(const char* name, const TypeFacts& facts, Array& array);
  void read_protocol(const char* name, const TypeFacts& facts, bool has_grad, Array& array);
  void read_interface(const char* name, Array& array);
  void read_own(const char* name, Array& array);
  void choose_stream(cudaStream_t stream, Owned owner = {});
  void wait_for(cudaStream_t stream);
  [[noreturn]] void refuse_host_array(const char* name, const Array& array) const;

  const char* op_;
  bool is_known_ = false;
  const char* first_ = nullptr;         // the argument that decided
  PyTypeObject* first_type_ = nullptr;  // its type, borrowed
  int device_ = kHost;
  bool has_stream_ = false;
  cudaStream_t stream_ = nullptr;
  Owned stream_owner_;
  const dlpack::ExchangeAPI* api_ = nullptr;  // whose current stream it is
  std::vector<cudaStream_t> others_;          // that arrays belong to
  std::optional<CurrentDevice> current_;
};

}  // namespace tensor_ops
