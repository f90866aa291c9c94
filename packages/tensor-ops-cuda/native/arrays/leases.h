// Memory that producers lent to calls which may still be running.
#pragma once

#include "arrays/array.h"

namespace tensor_ops {

// Gives a lease back some time after the stream has done what it was asked to do until now: no
// earlier than a later call. Called with the GIL, as producers may want it.
void keep_lease(Lease lease, cudaStream_t stream);

}  // namespace tensor_ops
