#include "python/decode_settings.h"

#include <string>

#include "binding/decode_executable.h"
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

std::size_t workers_argument(const py::object& given) {
  if (given.is_none()) return static_cast<std::size_t>(num_threads());
  return workers_from(given, static_cast<std::size_t>(sensible_threads(1 << 20)));
}

}  // namespace tensor_ops
