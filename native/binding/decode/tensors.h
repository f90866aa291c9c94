// The tensors of a program, which Python gives as arrays in host memory.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

#include "binding/python/python.h"
#include "decode/program/program.h"

namespace tensor_ops {

// By tensor of a program, what is in the caller's memory, and the objects that keep it there. All
// are null where a tensor is not given.
struct GivenTensors {
  std::vector<decode::TensorBytes> bytes;
  std::vector<pybind11::object> objects, views;
};

// The wanted tensors of a mapping of arrays of NumPy or with DLPack, by tensor: bytes of a tensor
// or its numbers, C-contiguous. Throws TypeError, ValueError, PythonError or error_already_set.
GivenTensors given_tensors(const decode::Program& program, const pybind11::object& tensors,
                           const std::vector<bool>& wanted);

// The memory of a C-contiguous array.
decode::TensorBytes bytes_of(PyArrayObject* array);

}  // namespace tensor_ops
