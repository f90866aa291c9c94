// Arrays whose type has DLPack's C exchange API: seen without a Python call.
#include "arrays/readers.h"
#include "declaration/errors.h"

namespace tensor_ops {

dlpack::Device read_exchange_tensor(const char* op, const char* name,
                                    const dlpack::ExchangeAPI& api, Array& array) {
  dlpack::DLTensor borrowed;
  const dlpack::DLTensor* tensor = &borrowed;
  if (api.tensor_from_object) {
    if (api.tensor_from_object(array.object, &borrowed) != 0) throw PythonError();
  } else {
    dlpack::ManagedTensorVersioned* managed = nullptr;
    if (api.managed_from_object(array.object, &managed) != 0) throw PythonError();
    array.lease = Lease(managed);
    // The work is on the producer's own stream, so that the lease can be given back at once.
    array.has_stream = true;
    tensor = &managed->tensor;
  }
  read_tensor(op, name, *tensor, array);
  return tensor->device;
}

}  // namespace tensor_ops
