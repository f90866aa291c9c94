#include "arrays/array_reader.h"

#include <algorithm>

#include "declaration/errors.h"

namespace tensor_ops {

void ArrayReader::begin(const Declaration& op, const Arguments& arguments) {
  first_ = op.parameters[0].name;
  first_object_ = arguments.value[0];
  if (PyArray_Check(first_object_)) return;
  exchange_ = exchange_api(Py_TYPE(first_object_));
  if (!exchange_) return;
  const bool has_tangents = are_tangents_tracked();
  PyObject* const* value = arguments.value;
  for (const Parameter& parameter : op.parameters) {
    PyObject* object = *value++;
    if (parameter.is_array() && object) begin_foreign(parameter.name, object, false, has_tangents);
  }
  PyObject* out = arguments.out;
  if (!out) return;
  if (!PyTuple_Check(out)) return begin_foreign("out", out, true, has_tangents);
  // A longer tuple is refused later.
  const auto count = std::min<Py_ssize_t>(PyTuple_Size(out), kMaxOutputs);
  for (Py_ssize_t i = 0; i < count; ++i)
    begin_foreign("out", PyTuple_GetItem(out, i), true, has_tangents);
}

void ArrayReader::begin_foreign(const char* name, PyObject* object, bool is_output,
                                bool has_tangents) {
  const dlpack::ExchangeAPI* api =
      Py_TYPE(object) == Py_TYPE(first_object_) ? exchange_ : exchange_api(Py_TYPE(object));
  if (!api) return;  // read() refuses it
  require_all_in_memory(op_, name, object, is_output, has_tangents);
  foreign_[foreign_count_++] = {object, api};
}

void ArrayReader::read_foreign(const char* name, Array& array) {
  PyObject* object = array.object;
  const dlpack::ExchangeAPI* api = api_of(object);
  if (!api && PyArray_Check(object)) refuse_two_libraries(name, object);
  if (!api)
    throw TypeError(
        text(op_, ": ", name, " must be an array like ", first_, ", got ", type_name(object)));
  array.numpy = nullptr;
  view_foreign(op_, name, *api, array);
}

void ArrayReader::refuse(const char* name, const Array& array) const {
  PyObject* object = array.object;
  if (PyArray_Check(first_object_) && exchange_api(Py_TYPE(object)))
    refuse_two_libraries(name, object);
  throw TypeError(text(op_, ": ", name, " must be a numpy.ndarray, got ", type_name(object),
                       array.is_output ? "" : "; convert it with numpy.asarray"));
}

const dlpack::ExchangeAPI* ArrayReader::api_of(PyObject* object) const {
  for (int i = 0; i < foreign_count_; ++i)
    if (foreign_[i].object == object) return foreign_[i].api;
  return nullptr;
}

void ArrayReader::refuse_two_libraries(const char* name, PyObject* object) const {
  throw TypeError(text(op_, ": ", name, " must be an array like ", first_, ", which is a ",
                       type_name(first_object_), ", got a ", type_name(object),
                       "; give all arrays of a call as NumPy's or all as tensors"));
}

}  // namespace tensor_ops
