#include "python/checks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "arrays/dtypes.h"
#include "launch/errors.h"
#include "python/overlap.h"

namespace tensor_ops {
namespace {

const char* type_name(PyObject* object) { return Py_TYPE(object)->tp_name; }

std::string shape_text(const View& view) { return tensor_ops::shape_text(view.dims, view.shape); }

std::int64_t row_length(const View& x) { return x.dims ? x.shape[x.dims - 1] : 1; }

void require_supported(const Op& op, const char* name, const Array& array) {
  if (array.view.dtype != kDTypes) return;
  throw TypeError(text(op.name, ": ", name, " has dtype ", dtype_text(array),
                       "; the supported dtypes are ", kSupportedDTypes, "; convert it with ", name,
                       ".astype"));
}

// The number of the argument of that name; of the first where it is null.
int number_of(const CheckedCall& call, const char* name) {
  for (int k = 1; name && k < call.arrays; ++k)
    if (std::strcmp(call.name[k], name) == 0) return k;
  return 0;
}

void require_dtype(const Op& op, const Parameter& parameter, const Array& array,
                   const CheckedCall& call) {
  const int like = number_of(call, parameter.dtype_of);
  const DType wanted = call.array[like].view.dtype;
  const bool may_be_wide = parameter.is_wide && is_half_dtype(wanted);
  if (array.view.dtype == wanted || (may_be_wide && array.view.dtype == kFloat32)) return;
  throw TypeError(text(op.name, ": ", parameter.name, " has dtype ", dtype_text(array),
                       ", expected ", kDTypeNames[wanted], " like ", call.name[like],
                       may_be_wide ? ", or float32" : "", "; convert it with ", parameter.name,
                       ".astype(", call.name[like], ".dtype)"));
}

void require_output_dtype(const Op& op, std::size_t i, const Array& out, const CheckedCall& call) {
  const DType wanted = output_dtype(op, i, call);
  if (out.view.dtype == wanted) return;
  const int like = number_of(call, op.outputs[i].dtype_of);
  throw TypeError(text(op.name, ": ", output_name(op, i), " has dtype ", dtype_text(out),
                       ", expected ", kDTypeNames[wanted], " like ", call.name[like],
                       "; give an array of dtype ", kDTypeNames[wanted]));
}

void require_x_shape(const Op& op, const char* name, const View& view, const View& x,
                     const char* x_name) {
  if (view.dims == x.dims && std::equal(view.shape, view.shape + view.dims, x.shape)) return;
  throw ValueError(text(op.name, ": ", name, " must have ", x_name, "'s shape ", shape_text(x),
                        ", got ", shape_text(view)));
}

void require_row(const Op& op, const char* name, const View& view, const View& x,
                 const char* x_name) {
  if (view.dims == 1 && view.shape[0] == row_length(x)) return;
  const std::int64_t expected[1] = {row_length(x)};
  throw ValueError(text(op.name, ": ", name, " must have shape ",
                        tensor_ops::shape_text(1, expected), ", one element for each of ", x_name,
                        "'s last axis (", x_name, " has shape ", shape_text(x), "), got ",
                        shape_text(view)));
}

void require_half_rows(const Op& op, const char* name, const View& view, const View& x,
                       const char* x_name) {
  const int offset = x.dims - view.dims;
  std::int64_t target[kMaxDims];
  std::copy_n(x.shape, x.dims, target);
  target[x.dims - 1] /= 2;
  bool fits = offset >= 0;
  for (int d = 0; fits && d < view.dims; ++d)
    fits = view.shape[d] == target[d + offset] || view.shape[d] == 1;
  if (fits) return;
  throw ValueError(text(op.name, ": ", name, " must broadcast to ",
                        tensor_ops::shape_text(x.dims, target), ", ", x_name,
                        "'s shape with half the last axis, got ", shape_text(view)));
}

void require_x_rank(const Op& op, const View& x) {
  const char* name = op.parameters[0].name;
  if (op.walk == Walk::kElements) return;
  if (x.dims == 0)
    throw ValueError(text(op.name, ": ", name,
                          " must have at least one axis, got a 0-d array; use ", name,
                          ".reshape(1)"));
  if (row_length(x) % 2 == 0) return;
  const bool has_half_rows =
      std::any_of(op.parameters.begin(), op.parameters.end(),
                  [](const Parameter& p) { return p.kind == Kind::kHalfRows; });
  if (has_half_rows)
    throw ValueError(
        text(op.name, ": ", name, "'s last axis must have even length, got shape ", shape_text(x)));
}

// Python and NumPy real numbers, but neither bools nor time spans.
bool is_real_number(PyObject* object) {
  if (PyFloat_Check(object)) return true;
  if (PyLong_Check(object)) return !PyBool_Check(object);
  if (PyArray_IsScalar(object, Timedelta)) return false;
  return PyArray_IsScalar(object, Integer) || PyArray_IsScalar(object, Floating) ||
         is_bfloat16_type(Py_TYPE(object));
}

double require_scalar(const Op& op, const Parameter& parameter, PyObject* object) {
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

std::size_t require_choice(const Op& op, const Parameter& parameter, PyObject* object) {
  if (!PyUnicode_Check(object))
    throw TypeError(text(op.name, ": ", parameter.name, " must be a str, '", parameter.choices[0],
                         "' or '", parameter.choices[1], "', got ", type_name(object)));
  for (std::size_t i = 0; i < 2; ++i)
    if (PyUnicode_CompareWithASCIIString(object, parameter.choices[i]) == 0) return i;
  throw ValueError(text(op.name, ": ", parameter.name, " must be '", parameter.choices[0], "' or '",
                        parameter.choices[1], "', got ", repr_text(object)));
}

std::size_t require_flag(const Op& op, const Parameter& parameter, PyObject* object) {
  if (PyBool_Check(object)) return object == Py_True;
  if (PyArray_IsScalar(object, Bool)) return PyArrayScalar_VAL(object, Bool) != 0;
  throw TypeError(text(op.name, ": ", parameter.name, " must be a bool, got ", type_name(object)));
}

// Before the arrays are looked at, since a number's class may have methods that change them.
void add_numbers(const Op& op, const Arguments& arguments, CheckedCall& call) {
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

void add_array(const Op& op, const Parameter& parameter, PyObject* object, CheckedCall& call) {
  const int k = call.arrays++;
  call.kind[k] = parameter.kind;
  call.name[k] = parameter.name;
  if (parameter.kind == Kind::kOptionalRow && (!object || object == Py_None)) return;
  Array& array = call.array[k];
  call.place.read(parameter.name, object, array);
  if (k == 0) {
    require_supported(op, parameter.name, array);
    return require_x_rank(op, array.view);
  }
  const View& x = call.array[0].view;
  require_dtype(op, parameter, array, call);
  switch (parameter.kind) {
    case Kind::kRows:
      return require_x_shape(op, parameter.name, array.view, x, call.name[0]);
    case Kind::kHalfRows:
      return require_half_rows(op, parameter.name, array.view, x, call.name[0]);
    default:
      return require_row(op, parameter.name, array.view, x, call.name[0]);
  }
}

void add_out(const Op& op, std::size_t i, PyObject* object, CheckedCall& call) {
  const char* name = output_name(op, i);
  Array& out = call.out[i];
  out.is_output = true;
  call.place.read(name, object, out);
  require_output_dtype(op, i, out, call);
  require_x_shape(op, name, out.view, call.array[0].view, call.name[0]);
  if (out.view.is_read_only)
    throw ValueError(text(op.name, ": ", name, " is read-only; give a writable array"));
}

void add_outputs(const Op& op, PyObject* out, CheckedCall& call) {
  if (!out || out == Py_None) return;
  if (op.outputs.size() == 1) {
    add_out(op, 0, out, call);
  } else {
    if (!PyTuple_Check(out) || PyTuple_GET_SIZE(out) != 2)
      throw TypeError(text(op.name, ": out must be a tuple of two arrays, (", op.outputs[0].name,
                           ", ", op.outputs[1].name, "), got ",
                           PyTuple_Check(out) ? repr_text(out) : type_name(out)));
    for (std::size_t i = 0; i < 2; ++i)
      add_out(op, i, PyTuple_GET_ITEM(out, static_cast<Py_ssize_t>(i)), call);
  }
  check_overlap(op, call);
}

}  // namespace

std::string repr_text(PyObject* object) {
  const Owned repr(PyObject_Repr(object));
  const char* utf8 = repr ? PyUnicode_AsUTF8(repr.get()) : nullptr;
  if (utf8) return utf8;
  PyErr_Clear();
  return text("an object of type ", type_name(object));
}

const char* output_name(const Op& op, std::size_t i) {
  if (op.outputs.size() == 1) return "out";
  return i == 0 ? "out[0]" : "out[1]";
}

DType output_dtype(const Op& op, std::size_t i, const CheckedCall& call) {
  return call.array[number_of(call, op.outputs[i].dtype_of)].view.dtype;
}

void check(const Op& op, const Arguments& arguments, CheckedCall& call) {
  add_numbers(op, arguments, call);
  PyObject* const* value = arguments.value;
  for (const Parameter& parameter : op.parameters) {
    PyObject* object = *value++;
    if (parameter.is_array()) add_array(op, parameter, object, call);
  }
  add_outputs(op, arguments.out, call);
}

}  // namespace tensor_ops
