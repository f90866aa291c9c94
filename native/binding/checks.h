// The checks of a call's arguments, all made before any work.
//
// Each backend has its own kind of Array, in arrays/array.h:
//
//     PyObject* object;   // borrowed; null where not given
//     bool is_output;
//     bool is_numpy() const;
//     DType dtype() const;                // kDTypes: not a supported one
//     int dims() const;
//     const npy_intp* shape() const;
//     const npy_intp* strides() const;    // bytes
//     char* data() const;
//     bool is_contiguous() const;
//     std::string dtype_text(const Array&);
//
// and in arrays/array_reader.h an ArrayReader, which is made for each call:
//
//     explicit ArrayReader(const char* op);
//     // Before any array is read.
//     void begin(const Declaration& op, const Arguments& arguments);
//     // Fills the Array, or throws an error that names the op and the argument.
//     void read(const char* name, PyObject* object, Array& array);
//     bool is_read_only(const Array& array) const;
#pragma once

#include "arrays/array.h"
#include "arrays/array_reader.h"
#include "binding/arguments.h"
#include "declaration/declaration.h"

namespace tensor_ops {

struct CheckedCall {
  explicit CheckedCall(const Declaration& op) : reader(op.name) {}

  ArrayReader reader;
  int arrays = 0;           // array arguments, given or not
  Array array[kMaxArrays];  // in declaration order
  Kind kind[kMaxArrays];
  const char* name[kMaxArrays];
  double scalar[kMaxScalars] = {};  // in declaration order
  std::size_t variant = 0;          // the value of the op's choice or flag
  Array out[2];                     // without an object where the result is to be allocated
};

// Throws TypeError, ValueError, PythonError or what the backend's ArrayReader throws. Messages name
// the op and the argument, what it was and what it should be.
void check(const Declaration& op, const Arguments& arguments, CheckedCall& call);

// How messages name output i: "out", or "out[i]" where there are two.
const char* output_name(const Declaration& op, std::size_t i);

}  // namespace tensor_ops
