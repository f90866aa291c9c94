// The Python type of DeviceArray.
#pragma once

#include <pybind11/pybind11.h>

namespace tensor_ops {

// Adds the type and to_device() to the module.
void add_device_array(pybind11::module_& module);

}  // namespace tensor_ops
