// The checks of a call's arguments, all made before any work.
#pragma once

#include <string>

#include "arrays/array.h"
#include "arrays/place.h"
#include "launch/declaration.h"
#include "python/arguments.h"

namespace tensor_ops {

struct CheckedCall {
  explicit CheckedCall(const char* op) : place(op) {}

  Place place;
  int arrays = 0;  // array arguments, given or not
  Array array[kMaxArrays];
  Kind kind[kMaxArrays];
  const char* name[kMaxArrays];
  double scalar[kMaxScalars] = {};
  std::size_t variant = 0;
  Array out[2];  // no object where the result is to be allocated

  DType dtype() const { return array[0].view.dtype; }
};

// Output i's: that of an argument.
DType output_dtype(const Op& op, std::size_t i, const CheckedCall& call);

// Throws TypeError, ValueError, UnavailableError or CudaError, naming the op, the argument, what it
// was and what it should be.
void check(const Op& op, const Arguments& arguments, CheckedCall& call);

// repr(object), or what it is where that fails.
std::string repr_text(PyObject* object);

// How messages name output i: "out", or "out[i]" where there are two.
const char* output_name(const Op& op, std::size_t i);

}  // namespace tensor_ops
