// The Python type of DeviceArray.
#pragma once

#include "binding/python/nanobind.h"

namespace tensor_ops {

// Adds the type and to_device() to the module.
void add_device_array(nanobind::module_& module);

}  // namespace tensor_ops
