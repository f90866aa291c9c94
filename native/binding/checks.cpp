#include "binding/checks.h"

#include <algorithm>
#include <cmath>

#include "binding/dtypes.h"
#include "binding/overlap.h"
#include "declaration/errors.h"

namespace tensor_ops {
namespace {

std::string array_shape_text(const Array& array) { return shape_text(array.dims(), array.shape()); }

npy_intp row_length(const Array& x) { return x.dims() ? x.shape()[x.dims() - 1] : 1; }

void require_supported(const Declaration& op, const Array& x) {
  if (x.dtype() != kDTypes) return;
  const char* name = op.parameters[0].name;
  throw TypeError(text(op.name, ": ", name, " has dtype ", dtype_text(x),
                       "; the supported dtypes are ", kSupportedDTypes, "; convert it ",
                       x.is_numpy() ? text("with ", name, ".astype") : "first"));
}

// Requires the dtype of argument `like`, or float32 where that may be instead.
void require_dtype(const Declaration& op, const char* name, const Array& array, int like,
                   bool may_be_float32, const CheckedCall& call) {
  const DType wanted = call.array[like].dtype();
  if (array.dtype() == wanted || (may_be_float32 && array.dtype() == kFloat32)) return;
  std::string advice;
  if (array.is_output)
    advice = text("give an array of dtype ", kDTypeNames[wanted]);
  else if (array.is_numpy())
    advice = text("convert it with ", name, ".astype(", call.name[like], ".dtype)");
  else
    advice = "convert it first";
  throw TypeError(text(op.name, ": ", name, " must have ", call.name[like], "'s dtype ",
                       kDTypeNames[wanted], may_be_float32 ? ", or float32" : "", ", got ",
                       dtype_text(array), "; ", advice));
}

// Parameters (a weight and its bias, cosines and sines) have the dtype of the first of them. That
// one has x's dtype or float32, as rows have where their declaration says so.
void require_input_dtype(const Declaration& op, const Parameter& parameter, int k,
                         const CheckedCall& call) {
  const bool is_rows = parameter.kind == Kind::kRows;
  int like = 0;
  for (int i = 1; i < k && !is_rows && like == 0; ++i)
    if (call.array[i].object && call.kind[i] != Kind::kRows) like = i;
  const bool may_be_float32 =
      parameter.may_be_float32 && like == 0 && is_half_dtype(call.array[0].dtype());
  require_dtype(op, parameter.name, call.array[k], like, may_be_float32, call);
}

void require_x_shape(const Declaration& op, const char* name, const Array& array, const Array& x) {
  if (array.dims() == x.dims() && std::equal(x.shape(), x.shape() + x.dims(), array.shape()))
    return;
  throw ValueError(text(op.name, ": ", name, " must have ", op.parameters[0].name, "'s shape ",
                        array_shape_text(x), ", got ", array_shape_text(array)));
}

void require_row(const Declaration& op, const char* name, const Array& array, const Array& x) {
  if (array.dims() == 1 && array.shape()[0] == row_length(x)) return;
  const char* x_name = op.parameters[0].name;
  const npy_intp expected[1] = {row_length(x)};
  throw ValueError(text(op.name, ": ", name, " must have shape ", shape_text(1, expected),
                        ", one element for each of ", x_name, "'s last axis (", x_name,
                        " has shape ", array_shape_text(x), "), got ", array_shape_text(array)));
}

void require_half_rows(const Declaration& op, const char* name, const Array& array,
                       const Array& x) {
  const int dims = x.dims(), offset = dims - array.dims();
  npy_intp target[NPY_MAXDIMS];
  std::copy_n(x.shape(), dims, target);
  target[dims - 1] /= 2;
  bool fits = offset >= 0;
  for (int d = 0; fits && d < array.dims(); ++d)
    fits = array.shape()[d] == target[d + offset] || array.shape()[d] == 1;
  if (fits) return;
  throw ValueError(text(op.name, ": ", name, " must broadcast to ", shape_text(dims, target), ", ",
                        op.parameters[0].name, "'s shape with half the last axis, got ",
                        array_shape_text(array)));
}

void require_x_rank(const Declaration& op, const Array& x) {
  const char* name = op.parameters[0].name;
  if (op.walk == Walk::kElements) return;
  if (x.dims() == 0)
    throw ValueError(text(op.name, ": ", name,
                          " must have at least one axis, got a 0-d array; use ", name,
                          ".reshape(1)"));
  if (row_length(x) % 2 == 0) return;
  const bool has_half_rows =
      std::any_of(op.parameters.begin(), op.parameters.end(),
                  [](const Parameter& p) { return p.kind == Kind::kHalfRows; });
  if (has_half_rows)
    throw ValueError(text(op.name, ": ", name, "'s last axis must have even length, got shape ",
                          array_shape_text(x)));
}

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
    const double value = PyFloat_AS_DOUBLE(object);
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
  if (PyArray_IsScalar(object, Bool)) return PyArrayScalar_VAL(object, Bool) != 0;
  throw TypeError(text(op.name, ": ", parameter.name, " must be a bool, got ", type_name(object)));
}

// Before the arrays are looked at, since a number's class may have methods that change them.
void add_numbers(const Declaration& op, const Arguments& arguments, CheckedCall& call) {
  std::size_t scalars = 0;
  PyObject* const* value = arguments.value;
  for (const Parameter& parameter : op.parameters) {
    PyObject* object = *value++;
    if (parameter.kind == Kind::kScalar)
      call.scalar[scalars++] =
          object ? require_scalar(op, parameter, object) : parameter.default_value;
    else if (object && parameter.kind == Kind::kChoice)
      call.variant = require_choice(op, parameter, object);
    else if (object && parameter.kind == Kind::kFlag)
      call.variant = require_flag(op, parameter, object);
  }
}

void add_array(const Declaration& op, const Parameter& parameter, PyObject* object,
               CheckedCall& call) {
  const int k = call.arrays++;
  call.kind[k] = parameter.kind;
  call.name[k] = parameter.name;
  if (parameter.kind == Kind::kOptionalRow && (!object || object == Py_None)) return;
  Array& array = call.array[k];
  call.reader.read(parameter.name, object, array);
  if (k == 0) {
    require_supported(op, array);
    return require_x_rank(op, array);
  }
  require_input_dtype(op, parameter, k, call);
  switch (parameter.kind) {
    case Kind::kRows:
      return require_x_shape(op, parameter.name, array, call.array[0]);
    case Kind::kHalfRows:
      return require_half_rows(op, parameter.name, array, call.array[0]);
    default:
      return require_row(op, parameter.name, array, call.array[0]);
  }
}

void add_output(const Declaration& op, std::size_t i, PyObject* object, CheckedCall& call) {
  const char* name = output_name(op, i);
  Array& out = call.out[i];
  // Messages then advise no copy, which the result would not reach.
  out.is_output = true;
  call.reader.read(name, object, out);
  require_dtype(op, name, out, static_cast<int>(op.outputs[i].like), false, call);
  require_x_shape(op, name, out, call.array[0]);
  if (call.reader.is_read_only(out))
    throw ValueError(text(op.name, ": ", name, " is read-only; give a writable array"));
}

void add_outputs(const Declaration& op, PyObject* out, CheckedCall& call) {
  if (!out || out == Py_None) return;
  if (op.outputs.size() == 1) {
    add_output(op, 0, out, call);
  } else {
    if (!PyTuple_Check(out) || PyTuple_GET_SIZE(out) != 2)
      throw TypeError(text(op.name, ": out must be a tuple of two arrays, (", op.outputs[0].name,
                           ", ", op.outputs[1].name, "), got ",
                           PyTuple_Check(out) ? repr_text(out) : type_name(out)));
    for (std::size_t i = 0; i < 2; ++i)
      add_output(op, i, PyTuple_GET_ITEM(out, static_cast<Py_ssize_t>(i)), call);
  }
  check_overlap(op, call);
}

}  // namespace

const char* output_name(const Declaration& op, std::size_t i) {
  if (op.outputs.size() == 1) return "out";
  return i == 0 ? "out[0]" : "out[1]";
}

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
