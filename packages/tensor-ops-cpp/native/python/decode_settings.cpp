#include "python/decode_settings.h"

#include <string>

#include "binding/python.h"
#include "declaration/errors.h"
#include "decode/program/activation_names.h"
#include "threads/threads.h"

namespace py = pybind11;

namespace tensor_ops {

decode::ActivationType activations_option(const py::object& options) {
  decode::ActivationType activations = decode::ActivationType::kInt8x2;
  if (options.is_none()) return activations;
  for (const auto& [key, value] : options.cast<py::dict>()) {
    const auto name = py::str(key).cast<std::string>();
    if (name != "activations")
      throw ValueError(text("unknown option '", name, "'; valid: activations"));
    activations = decode::activation_type(py::str(value).cast<std::string>());
  }
  return activations;
}

std::size_t workers_from(const py::object& given, std::size_t most) {
  const Owned index(PyNumber_Index(given.ptr()));
  if (!index || PyBool_Check(given.ptr())) {
    PyErr_Clear();
    throw TypeError(text("num_workers must be an int or None, got ", type_name(given.ptr())));
  }
  int overflow = 0;
  const long value = PyLong_AsLongAndOverflow(index.get(), &overflow);
  if (overflow != 0 || value < 1 || static_cast<std::size_t>(value) > most)
    throw ValueError(
        text("num_workers must be from 1 to ", most, ", got ", repr_text(given.ptr())));
  return static_cast<std::size_t>(value);
}

std::size_t workers_argument(const py::object& given) {
  if (given.is_none()) return static_cast<std::size_t>(num_threads());
  return workers_from(given, static_cast<std::size_t>(sensible_threads(1 << 20)));
}

}  // namespace tensor_ops
