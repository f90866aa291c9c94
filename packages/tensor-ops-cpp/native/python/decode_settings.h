// The settings of an executable, as Python gives them. Messages about them name no function: those
// who load a model pass them to several.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>

#include "decode/program/activation_type.h"

namespace tensor_ops {

decode::ActivationType activations_option(const pybind11::object& options);
// The number of workers of an executable that is to be made; None is the number of threads.
std::size_t workers_argument(const pybind11::object& given);

}  // namespace tensor_ops
