#pragma once

#include <pybind11/pybind11.h>

namespace tensor_ops {

// The products of the executor one by one, for the tests:
//
// decode_product(format, activations, variant, weight, x, tokens) -> y: x is multiplied by `tokens`
// of its rows at a time; weight has the bytes of a row of the file in each row.
// decode_dequantize(format, row, columns) -> values.
// decode_product_variants() -> names of those that the CPU has; decode_formats() -> names.
void add_decode_product(pybind11::module_& module);

}  // namespace tensor_ops
