// Programs of a model's decode step, as Python sees them.
#pragma once

#include <pybind11/pybind11.h>

namespace tensor_ops {

// Adds supports_program(), program_memory(), program_memory_limit(), compile_program(),
// most_workers() and the class Executable.
void add_decode(pybind11::module_& module);

}  // namespace tensor_ops
