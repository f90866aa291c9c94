#include "binding/ops/checks.h"

#include <cmath>

#include "binding/python/dtypes.h"
#include "declaration/errors.h"

namespace tensor_ops {
namespace {

// Python and NumPy real numbers, but neither bools nor time spans.
bool is_real_number(PyObject* object) {
  if (PyFloat_Check(object)) return true;
  if (PyLong_Check(object)) return !PyBool_Check(object);
  if (PyArray_IsScalar(object, Timedelta)) return false;
  return PyArray_IsScalar(object, Integer) || PyArray_IsScalar(object, Floating) ||
         is_bfloat16_type(Py_TYPE(object));
}

double require_scalar(const Declaration& op, const Parameter& parameter, PyObject* object) {
  if (PyFloat_CheckExact(object)) {
    const double value = PyFloat_AsDouble(object);
    if (std::isfinite(value) && (value >= 0 || !parameter.non_negative)) return value;
  }
  if (!is_real_number(object))
    throw TypeError(
        text(op.name, ": ", parameter.name, " must be a real number, got ", type_name(object)));
  const double value = PyFloat_AsDouble(object);
  const bool failed = value == -1 && PyErr_Occurred();
  if (failed && !PyErr_ExceptionMatches(PyExc_OverflowError)) throw PythonError();
  if (failed) PyErr_Clear();
  if (failed || !std::isfinite(value) || (parameter.non_negative && value < 0))
    throw ValueError(text(op.name, ": ", parameter.name, " must be finite",
                          parameter.non_negative ? " and not negative" : "", ", got ",
                          repr_text(object)));
  return value;
}

std::size_t require_choice(const Declaration& op, const Parameter& parameter, PyObject* object) {
  if (!PyUnicode_Check(object))
    throw TypeError(text(op.name, ": ", parameter.name, " must be a str, '", parameter.choices[0],
                         "' or '", parameter.choices[1], "', got ", type_name(object)));
  for (std::size_t i = 0; i < 2; ++i)
    if (PyUnicode_CompareWithASCIIString(object, parameter.choices[i]) == 0) return i;
  throw ValueError(text(op.name, ": ", parameter.name, " must be '", parameter.choices[0], "' or '",
                        parameter.choices[1], "', got ", repr_text(object)));
}

std::size_t require_flag(const Declaration& op, const Parameter& parameter, PyObject* object) {
  if (PyBool_Check(object)) return object == Py_True;
  if (PyArray_IsScalar(object, Bool)) return PyObject_IsTrue(object) != 0;
  throw TypeError(text(op.name, ": ", parameter.name, " must be a bool, got ", type_name(object)));
}

// Before the arrays are looked at, since a number's class may have methods that change them.
void add_numbers(const Declaration& op, const Arguments& arguments, CheckedCall& call) {
  std::size_t scalars = 0;
  PyObject* const* value = arguments.value;
  for (const Parameter& parameter : op.parameters) {
    PyObject* object = *value++;
    if (parameter.kind == ParameterKind::kScalar)
      call.scalar[scalars++] =
          object ? require_scalar(op, parameter, object) : parameter.default_value;
    else if (object && parameter.kind == ParameterKind::kChoice)
      call.variant = require_choice(op, parameter, object);
    else if (object && parameter.kind == ParameterKind::kFlag)
      call.variant = require_flag(op, parameter, object);
  }
}

void add_array(const Declaration& op, const Parameter& parameter, PyObject* object,
               CheckedCall& call) {
  const int k = call.arrays++;
  call.kind[k] = parameter.kind;
  call.name[k] = parameter.name;
  call.array[k].object = nullptr;
  call.array[k].is_output = false;
  if (parameter.kind == ParameterKind::kOptionalRow && (!object || object == Py_None)) return;
  call.reader.read(parameter.name, object, call.array[k]);
  check_input(op, parameter, call);
}

void add_output(const Declaration& op, std::size_t i, PyObject* object, CheckedCall& call) {
  const char* name = output_name(op, i);
  Array& out = call.out[i];
  // Messages then advise no copy, which the result would not reach.
  out.is_output = true;
  call.reader.read(name, object, out);
  check_output(op, i, call);
  if (call.reader.is_read_only(out))
    throw ValueError(text(op.name, ": ", name, " is read-only; give a writable array"));
}

void add_outputs(const Declaration& op, PyObject* out, CheckedCall& call) {
  if (!out || out == Py_None) return;
  if (op.outputs.size() == 1) {
    add_output(op, 0, out, call);
  } else {
    const std::size_t count = op.outputs.size();
    if (!PyTuple_Check(out) || PyTuple_Size(out) != static_cast<Py_ssize_t>(count))
      throw TypeError(
          text(op.name, ": out must be a tuple of ", count == 2 ? "two" : "three", " arrays, (",
               joined(op.outputs, [](const Output& output) { return output.name; }), "), got ",
               PyTuple_Check(out) ? text("a tuple of ", PyTuple_Size(out)) : type_name(out)));
    for (std::size_t i = 0; i < count; ++i)
      add_output(op, i, PyTuple_GetItem(out, static_cast<Py_ssize_t>(i)), call);
  }
  check_overlap(op, call);
}

}  // namespace

void check(const Declaration& op, const Arguments& arguments, CheckedCall& call) {
  add_numbers(op, arguments, call);
  call.reader.begin(op, arguments);
  PyObject* const* value = arguments.value;
  for (const Parameter& parameter : op.parameters) {
    PyObject* object = *value++;
    if (parameter.is_array()) add_array(op, parameter, object, call);
  }
  add_outputs(op, arguments.out, call);
}

}  // namespace tensor_ops
