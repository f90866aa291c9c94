// The tensors of a program, which Python gives as arrays in host memory.
#pragma once

#include <vector>

#include "binding/python/nanobind.h"
#include "decode/program/program.h"

namespace tensor_ops {

// By tensor of a program, what is in the caller's memory, and the objects that keep it there. All
// are null where a tensor is not given.
struct GivenTensors {
  std::vector<decode::TensorBytes> bytes;
  std::vector<nanobind::object> objects, views;
};

// The wanted tensors of a mapping of arrays of NumPy or with DLPack, by tensor: bytes of a tensor
// or its numbers, C-contiguous. Throws TypeError, ValueError, PythonError or python_error.
GivenTensors given_tensors(const decode::Program& program, const nanobind::object& tensors,
                           const std::vector<bool>& wanted);

// The memory of a C-contiguous array.
decode::TensorBytes bytes_of(PyArrayObject* array);

}  // namespace tensor_ops
