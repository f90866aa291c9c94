// The arrays that a call allocates for its results: of the kind that x is.
#pragma once

#include "arrays/array.h"
#include "arrays/array_reader.h"
#include "arrays/device_array.h"

namespace tensor_ops {

class Result {
 public:
  // C-contiguous, of x's shape, not initialised; the view gets to describe it. The dtype is x's or
  // float32. Throws MemoryError, Error or PythonError, naming the op where a library allocates.
  void allocate(const char* op, const Array& x, DType dtype, const ArrayReader& place, View& view);
  // The object that the caller gets, once the work is enqueued. Throws PythonError.
  Owned object(const Array& x);

 private:
  void allocate_on_host(const Array& x, DType dtype, View& view);
  void allocate_by_exchange(const char* op, const Array& x, DType dtype, View& view);

  Owned object_;                // NumPy's
  dlpack::OwnedTensor tensor_;  // the exchange API's
  DeviceArray own_;             // anybody else's
};

}  // namespace tensor_ops
