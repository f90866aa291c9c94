// The checks of a call's arguments, all made before any work.
#pragma once

#include <string>
#include <vector>

#include "arrays/dlpack.h"
#include "arrays/numpy.h"
#include "launch/declaration.h"
#include "python/arguments.h"

namespace tensor_ops {

// An array of another library than NumPy, borrowed.
struct ForeignArgument {
  PyObject* object;
  const dlpack::ExchangeAPI* api;
};

struct CheckedCall {
  DType dtype;                       // x's
  int mixture = kOneDType;           // a sum of Mixture's
  int arrays = 0;                    // array arguments, given or not
  PyArrayObject* array[kMaxArrays];  // borrowed, in declaration order; null where not given
  Kind kind[kMaxArrays];             // of those array arguments
  const char* name[kMaxArrays];
  double scalar[kMaxParameters];
  std::size_t variant = 0;
  int threads = 0;                             // 0: as many as pay
  PyArrayObject* out[2] = {nullptr, nullptr};  // borrowed; null where the result is to be allocated
  // Where x is no NumPy array: how its library allocates, all arrays of the call, the views that
  // stand for them, and what the outputs are views of.
  const dlpack::ExchangeAPI* exchange = nullptr;
  std::vector<ForeignArgument> foreign;
  std::vector<Owned> views;
  PyObject* given_out[2];
};

// Throws TypeError or ValueError, naming the op, the argument, what it was and what it should be.
CheckedCall check(const Op& op, const Arguments& arguments);

// repr(object), or what it is where that fails.
std::string repr_text(PyObject* object);

// How messages name output i: "out", or "out[i]" where there are two.
const char* output_name(const Op& op, std::size_t i);

// "(2, 3)"
std::string shape_text(int dims, const npy_intp* shape);

}  // namespace tensor_ops
