// Python exceptions for ours.
#pragma once

namespace tensor_ops {

// Sets the error indicator for the exception in flight.
void set_python_error();

}  // namespace tensor_ops
