// The checks of a call's arguments, all made before any work.
//
// Each backend has its own kind of Array, in arrays/array.h: what checks/array_checks.h describes,
// and
//
//     PyObject* object;   // borrowed; null where not given
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
#include "binding/ops/arguments.h"
#include "checks/array_checks.h"
#include "declaration/declaration.h"

namespace tensor_ops {

struct CheckedCall : CallArguments<Array> {
  // The arrays are set as they are read: zeros would take time that small calls show.
  explicit CheckedCall(const Declaration& op) : reader(op.name) {
    for (Array& each : out) each.object = nullptr;
  }

  ArrayReader reader;
};

// Throws TypeError, ValueError, PythonError or what the backend's ArrayReader throws. Messages name
// the op and the argument, what it was and what it should be.
void check(const Declaration& op, const Arguments& arguments, CheckedCall& call);

}  // namespace tensor_ops
