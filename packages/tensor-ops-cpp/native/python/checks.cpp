#include "python/checks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "arrays/dtypes.h"
#include "arrays/foreign.h"
#include "launch/errors.h"
#include "python/overlap.h"

namespace tensor_ops {
namespace {

const char* type_name(PyObject* object) { return Py_TYPE(object)->tp_name; }

std::string dtype_text(PyArrayObject* array) {
  const Owned str(PyObject_Str(reinterpret_cast<PyObject*>(PyArray_DESCR(array))));
  const char* utf8 = str ? PyUnicode_AsUTF8(str.get()) : nullptr;
  if (utf8) return utf8;
  PyErr_Clear();
  return "another dtype";
}

std::string shape_text(PyArrayObject* array) {
  return tensor_ops::shape_text(PyArray_NDIM(array), PyArray_DIMS(array));
}

npy_intp row_length(PyArrayObject* x) {
  return PyArray_NDIM(x) ? PyArray_DIM(x, PyArray_NDIM(x) - 1) : 1;
}

bool is_masked(PyObject* object) {
  // Where numpy.ma was never imported there is nothing that could be masked.
  const Owned name(PyUnicode_FromString("numpy.ma"));
  const Owned module(name ? PyImport_GetModule(name.get()) : nullptr);
  const Owned type(module ? PyObject_GetAttrString(module.get(), "MaskedArray") : nullptr);
  if (PyErr_Occurred()) PyErr_Clear();
  // Not isinstance(), which would ask the object.
  return type && PyType_Check(type.get()) &&
         PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(type.get()));
}

// Arrays of two libraries in one call.
[[noreturn]] void refuse_two_libraries(const Op& op, const char* name, PyObject* object,
                                       PyObject* x) {
  throw TypeError(text(op.name, ": ", name, " must be an array like ", op.parameters[0].name,
                       ", which is a ", type_name(x), ", got a ", type_name(object),
                       "; give all arrays of a call as NumPy's or all as tensors"));
}

PyArrayObject* require_numpy_array(const Op& op, const char* name, Use use, PyObject* object,
                                   const CheckedCall& call) {
  if (!PyArray_Check(object)) {
    if (call.array[0] && exchange_api(Py_TYPE(object)))
      refuse_two_libraries(op, name, object, reinterpret_cast<PyObject*>(call.array[0]));
    throw TypeError(text(op.name, ": ", name, " must be a numpy.ndarray, got ", type_name(object),
                         use == Use::kInput ? "; convert it with numpy.asarray" : ""));
  }
  if (is_masked(object))
    throw TypeError(text(op.name, ": ", name,
                         " must be a numpy.ndarray, got a MaskedArray, whose mask would be ignored",
                         use == Use::kInput ? "; fill it with .filled(value) first" : ""));
  return reinterpret_cast<PyArrayObject*>(object);
}

// Asks a library all that may run Python code, before any memory is looked at. Where it is no array
// nothing is noted.
void add_foreign(const Op& op, const char* name, Use use, PyObject* object, bool has_tangents,
                 CheckedCall& call) {
  const dlpack::ExchangeAPI* api = exchange_api(Py_TYPE(object));
  if (!api) return;
  require_all_in_memory(op, name, use, object, has_tangents);
  call.foreign.push_back({object, api});
}

void add_foreign_arrays(const Op& op, const Arguments& arguments, CheckedCall& call) {
  PyObject* x = arguments.value[0];
  if (PyArray_Check(x) || !(call.exchange = exchange_api(Py_TYPE(x)))) return;
  const bool has_tangents = are_tangents_tracked();
  PyObject* const* value = arguments.value;
  for (const Parameter& parameter : op.parameters) {
    PyObject* object = *value++;
    if (parameter.is_array() && object)
      add_foreign(op, parameter.name, Use::kInput, object, has_tangents, call);
  }
  PyObject* out = arguments.out;
  if (out && !PyTuple_Check(out)) add_foreign(op, "out", Use::kOutput, out, has_tangents, call);
  for (Py_ssize_t i = 0; out && PyTuple_Check(out) && i < PyTuple_GET_SIZE(out); ++i)
    add_foreign(op, "out", Use::kOutput, PyTuple_GET_ITEM(out, i), has_tangents, call);
  call.views.reserve(call.foreign.size());
}

const dlpack::ExchangeAPI* api_of(PyObject* object, const CheckedCall& call) {
  for (const ForeignArgument& each : call.foreign)
    if (each.object == object) return each.api;
  return nullptr;
}

PyArrayObject* require_array(const Op& op, const char* name, Use use, PyObject* object,
                             CheckedCall& call) {
  if (!call.exchange)
    return PyArray_CheckExact(object) ? reinterpret_cast<PyArrayObject*>(object)
                                      : require_numpy_array(op, name, use, object, call);
  const dlpack::ExchangeAPI* api = api_of(object, call);
  if (!api && PyArray_Check(object)) refuse_two_libraries(op, name, object, call.foreign[0].object);
  if (!api)
    throw TypeError(text(op.name, ": ", name, " must be an array like ", call.name[0], ", got ",
                         type_name(object)));
  return call.views.emplace_back(view_of_foreign(op, name, use, object, *api)).array();
}

void require_native_order(const Op& op, const char* name, Use use, PyArrayObject* array) {
  if (PyArray_ISNOTSWAPPED(array)) return;
  throw TypeError(
      text(op.name, ": ", name, " must have native byte order, got dtype ", dtype_text(array),
           use == Use::kInput
               ? text("; convert it with ", name, ".astype(", name, ".dtype.newbyteorder(\"=\"))")
               : ""));
}

DType require_supported(const Op& op, const char* name, PyArrayObject* array,
                        const CheckedCall& call) {
  if (call.exchange) return dtype_of_view(array);
  const DType dtype = dtype_of(PyArray_DESCR(array));
  if (dtype == kDTypes)
    throw TypeError(text(op.name, ": ", name, " has dtype ", dtype_text(array),
                         "; the supported dtypes are ", kSupportedDTypes, "; convert it with ",
                         name, ".astype"));
  require_native_order(op, name, Use::kInput, array);
  return dtype;
}

// kDTypes for an unsupported one.
DType dtype_of_array(PyArrayObject* array, const CheckedCall& call) {
  return call.exchange ? dtype_of_view(array) : dtype_of(PyArray_DESCR(array));
}

// Requires the dtype of argument `like`, or float32 where that may be instead; whether it is.
bool require_dtype(const Op& op, const char* name, Use use, PyArrayObject* array, int like,
                   bool may_be_float32, const CheckedCall& call) {
  if (PyArray_DESCR(array) == PyArray_DESCR(call.array[like])) return false;
  const DType wanted = dtype_of_array(call.array[like], call);
  const DType dtype = dtype_of_array(array, call);
  if (dtype != wanted && !(may_be_float32 && dtype == kFloat32)) {
    std::string advice;
    if (use == Use::kOutput)
      advice = text("; give an array of dtype ", kDTypeNames[wanted]);
    else if (call.exchange)
      advice = "; convert it first";
    else
      advice = text("; convert it with ", name, ".astype(", call.name[like], ".dtype)");
    throw TypeError(text(op.name, ": ", name, " must have ", call.name[like], "'s dtype ",
                         kDTypeNames[wanted], may_be_float32 ? ", or float32" : "", ", got ",
                         call.exchange ? kDTypeNames[dtype] : dtype_text(array), advice));
  }
  require_native_order(op, name, use, array);
  return dtype != wanted;
}

// Parameters (a weight and its bias, cosines and sines) have the dtype of the first of them. That
// one has x's dtype or float32, as rows have where their declaration says so.
void add_dtype(const Op& op, const Parameter& parameter, int k, CheckedCall& call) {
  const bool is_rows = parameter.kind == Kind::kRows;
  int like = 0;
  for (int i = 1; i < k && !is_rows && like == 0; ++i)
    if (call.array[i] && call.kind[i] != Kind::kRows) like = i;
  const bool may_be_float32 = parameter.may_be_float32 && like == 0 && is_half(call.dtype);
  if (require_dtype(op, parameter.name, Use::kInput, call.array[k], like, may_be_float32, call))
    call.mixture += is_rows ? kWideRows : kWideParameters;
}

bool are_same_shape(PyArrayObject* a, PyArrayObject* b) {
  return PyArray_NDIM(a) == PyArray_NDIM(b) &&
         std::equal(PyArray_DIMS(a), PyArray_DIMS(a) + PyArray_NDIM(a), PyArray_DIMS(b));
}

void require_x_shape(const Op& op, const char* name, PyArrayObject* array, PyArrayObject* x,
                     const char* x_name) {
  if (are_same_shape(array, x)) return;
  throw ValueError(text(op.name, ": ", name, " must have ", x_name, "'s shape ", shape_text(x),
                        ", got ", shape_text(array)));
}

void require_row(const Op& op, const char* name, PyArrayObject* array, PyArrayObject* x,
                 const char* x_name) {
  if (PyArray_NDIM(array) == 1 && PyArray_DIM(array, 0) == row_length(x)) return;
  const npy_intp expected[1] = {row_length(x)};
  throw ValueError(text(op.name, ": ", name, " must have shape ",
                        tensor_ops::shape_text(1, expected), ", one element for each of ", x_name,
                        "'s last axis (", x_name, " has shape ", shape_text(x), "), got ",
                        shape_text(array)));
}

void require_half_rows(const Op& op, const char* name, PyArrayObject* array, PyArrayObject* x,
                       const char* x_name) {
  const int dims = PyArray_NDIM(x), offset = dims - PyArray_NDIM(array);
  npy_intp target[NPY_MAXDIMS];
  std::copy_n(PyArray_DIMS(x), dims, target);
  target[dims - 1] /= 2;
  bool fits = offset >= 0;
  for (int d = 0; fits && d < PyArray_NDIM(array); ++d)
    fits = PyArray_DIM(array, d) == target[d + offset] || PyArray_DIM(array, d) == 1;
  if (fits) return;
  throw ValueError(text(op.name, ": ", name, " must broadcast to ",
                        tensor_ops::shape_text(dims, target), ", ", x_name,
                        "'s shape with half the last axis, got ", shape_text(array)));
}

void require_x_rank(const Op& op, PyArrayObject* x) {
  const char* name = op.parameters[0].name;
  if (op.walk == Walk::kElements) return;
  if (PyArray_NDIM(x) == 0)
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
  for (std::size_t i = 0; i < kMaxVariants; ++i)
    if (PyUnicode_CompareWithASCIIString(object, parameter.choices[i]) == 0) return i;
  throw ValueError(text(op.name, ": ", parameter.name, " must be '", parameter.choices[0], "' or '",
                        parameter.choices[1], "', got ", repr_text(object)));
}

std::size_t require_flag(const Op& op, const Parameter& parameter, PyObject* object) {
  if (PyBool_Check(object)) return object == Py_True;
  if (PyArray_IsScalar(object, Bool)) return PyArrayScalar_VAL(object, Bool) != 0;
  throw TypeError(text(op.name, ": ", parameter.name, " must be a bool, got ", type_name(object)));
}

int require_threads(const Op& op, PyObject* object) {
  if (!object || object == Py_None) return 0;
  const bool is_integer =
      (PyLong_Check(object) && !PyBool_Check(object)) ||
      (PyArray_IsScalar(object, Integer) && !PyArray_IsScalar(object, Timedelta));
  if (!is_integer)
    throw TypeError(text(op.name, ": num_threads must be an int or None, got ", type_name(object)));
  const Owned index(PyNumber_Index(object));
  if (!index) throw PythonError();
  int overflow = 0;
  const long value = PyLong_AsLongAndOverflow(index.get(), &overflow);
  if (overflow < 0 || (overflow == 0 && value < 1))
    throw ValueError(text(op.name, ": num_threads must be at least 1, got ", repr_text(object)));
  constexpr long kPlenty = 1 << 20;
  return static_cast<int>(overflow ? kPlenty : std::min(value, kPlenty));
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
  call.threads = require_threads(op, arguments.num_threads);
}

void add_array(const Op& op, const Parameter& parameter, PyObject* object, CheckedCall& call) {
  const int k = call.arrays++;
  call.kind[k] = parameter.kind;
  call.name[k] = parameter.name;
  call.array[k] = nullptr;
  if (parameter.kind == Kind::kOptionalRow && (!object || object == Py_None)) return;
  if (k == 0) {
    PyArrayObject* x = call.array[0] = require_array(op, parameter.name, Use::kInput, object, call);
    call.dtype = require_supported(op, parameter.name, x, call);
    return require_x_rank(op, x);
  }
  PyArrayObject* array = call.array[k] =
      require_array(op, parameter.name, Use::kInput, object, call);
  PyArrayObject* x = call.array[0];
  const char* x_name = call.name[0];
  add_dtype(op, parameter, k, call);
  switch (parameter.kind) {
    case Kind::kRows:
      return require_x_shape(op, parameter.name, array, x, x_name);
    case Kind::kHalfRows:
      return require_half_rows(op, parameter.name, array, x, x_name);
    default:
      return require_row(op, parameter.name, array, x, x_name);
  }
}

bool is_read_only(PyArrayObject* array, PyObject* object, const CheckedCall& call) {
  return call.exchange ? is_read_only_foreign(object, *api_of(object, call))
                       : !PyArray_ISWRITEABLE(array);
}

void add_output(const Op& op, std::size_t i, PyObject* object, CheckedCall& call) {
  const char* name = output_name(op, i);
  PyArrayObject* out = require_array(op, name, Use::kOutput, object, call);
  require_dtype(op, name, Use::kOutput, out, static_cast<int>(op.outputs[i].like), false, call);
  require_x_shape(op, name, out, call.array[0], call.name[0]);
  if (is_read_only(out, object, call))
    throw ValueError(text(op.name, ": ", name, " is read-only; give a writable array"));
  call.out[i] = out;
  call.given_out[i] = object;
}

void add_outputs(const Op& op, PyObject* out, CheckedCall& call) {
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

std::string shape_text(int dims, const npy_intp* shape) {
  std::string result = "(";
  for (int d = 0; d < dims; ++d)
    result += text(shape[d], d + 1 < dims ? ", " : dims == 1 ? "," : "");
  return result + ")";
}

CheckedCall check(const Op& op, const Arguments& arguments) {
  CheckedCall call;
  add_numbers(op, arguments, call);
  add_foreign_arrays(op, arguments, call);
  PyObject* const* value = arguments.value;
  for (const Parameter& parameter : op.parameters) {
    PyObject* object = *value++;
    if (parameter.is_array()) add_array(op, parameter, object, call);
  }
  add_outputs(op, arguments.out, call);
  return call;
}

}  // namespace tensor_ops
