// Programs of a model's decode step, as Python sees them.
#pragma once

#include <pybind11/pybind11.h>

namespace tensor_ops {

// Adds supports_program(), compile_program() and the class Executable.
void add_decode(pybind11::module_& module);

// The products of the executor one by one, for the tests:
//
// decode_product(format, activations, variant, weight, x, tokens) -> y: x is multiplied by `tokens`
// of its rows at a time; weight has the bytes of a row of the file in each row.
// decode_dequantize(format, row, columns) -> values.
// decode_product_variants() -> names of those that the CPU has; decode_formats() -> names.
void add_decode_product(pybind11::module_& module);

}  // namespace tensor_ops
