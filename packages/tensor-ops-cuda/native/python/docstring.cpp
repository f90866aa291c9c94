#include "python/docstring.h"

#include "launch/errors.h"
#include "python/arguments.h"

namespace tensor_ops {
namespace {

std::string quoted(const char* choice) { return text("{'", choice, "'"); }

std::string dtype_of(const Op& op, const Parameter& parameter) {
  const char* x = op.parameters[0].name;
  if (parameter.dtype_of) return text("dtype of ", parameter.dtype_of);
  if (parameter.is_wide) return text("dtype of ", x, ", or float32 beside a half ", x);
  return text("dtype of ", x);
}

std::string type_of(const Op& op, const Parameter& parameter) {
  const char* x = op.parameters[0].name;
  const std::string dtype = dtype_of(op, parameter);
  switch (parameter.kind) {
    case Kind::kRows:
      if (parameter.name == op.parameters[0].name)
        return op.walk == Walk::kRows ? "array, shape (..., n)" : "array";
      return text("array, shape of ", x, ", ", dtype);
    case Kind::kRow:
      return text("array, shape (n,), ", dtype);
    case Kind::kOptionalRow:
      return text("array, shape (n,), ", dtype, ", or None");
    case Kind::kHalfRows:
      return text("array that broadcasts to (..., n/2), ", dtype);
    case Kind::kScalar:
      return "float";
    case Kind::kChoice:
      return text(quoted(parameter.choices[0]), ", '", parameter.choices[1], "'}");
    case Kind::kFlag:
      return "bool";
  }
  return {};
}

std::string entry(const std::string& name, const std::string& type, const std::string& body) {
  return text(name, " : ", type, "\n    ", body, "\n");
}

std::string section(const char* title) {
  return text("\n", title, "\n", std::string(std::char_traits<char>::length(title), '-'), "\n");
}

std::string parameters_section(const Op& op) {
  const char* x = op.parameters[0].name;
  std::string result = section("Parameters");
  for (const Parameter& parameter : op.parameters)
    result += entry(parameter.name,
                    type_of(op, parameter) + (parameter.is_required() ? "" : ", optional"),
                    parameter.description);
  const bool is_single = op.outputs.size() == 1;
  result += entry(
      "out", is_single ? "array, optional" : "tuple of two arrays, optional",
      text("Where the result goes, of ", x,
           "'s shape and the result's dtype. It may be exactly\n    the view that a full-shape "
           "input is; it must not overlap an input in any other way."));
  return result;
}

std::string returns_section(const Op& op) {
  std::string result = section("Returns");
  for (const Output& output : op.outputs)
    result += entry(output.name,
                    text("array, shape of ", op.parameters[0].name, ", dtype of ",
                         output.dtype_of ? output.dtype_of : op.parameters[0].name),
                    text(output.description, " C-contiguous unless out was given."));
  return result;
}

std::string raises_section() {
  return text(
      section("Raises"),
      "TypeError\n    An argument is neither a NumPy array nor one on a CUDA device, has an "
      "unsupported\n    dtype (supported: ",
      kSupportedDTypes,
      "),\n    foreign byte order, or another dtype than it must have.\n"
      "ValueError\n    A shape, a number or an overlap with out is not allowed, or the "
      "arrays are on\n    different devices.\n"
      "MemoryError\n    The device has no memory left.\n"
      "RuntimeError\n    There is no device that can be used, or it failed.\n");
}

// An argument that the op takes, for x of shape (2, 4).
const char* example_argument(Kind kind) {
  switch (kind) {
    case Kind::kRow:
      return "np.ones(4, np.float32)";
    case Kind::kHalfRows:
      return "np.ones((2, 2), np.float32)";
    default:
      return "np.ones((2, 4), np.float32)";
  }
}

std::string examples_section(const Op& op) {
  std::string setup, names;
  for (const Parameter& parameter : op.parameters) {
    if (!parameter.is_required()) continue;
    setup += text(">>> ", parameter.name, " = ", example_argument(parameter.kind), "\n");
    names += text(names.empty() ? "" : ", ", parameter.name);
  }
  std::string outputs;
  for (const Output& output : op.outputs) outputs += text(outputs.empty() ? "" : ", ", output.name);
  return text(section("Examples"), ">>> import numpy as np\n>>> import tensor_ops_cuda\n", setup,
              ">>> ", outputs, " = tensor_ops_cuda.", op.name, "(", names, ")\n>>> ",
              op.outputs[0].name, ".shape\n(2, 4)\n");
}

}  // namespace

std::string docstring(const Op& op) {
  return text(op.name, signature(op), "\n--\n\n", op.summary, "\n\n    ", op.formula, "\n",
              parameters_section(op), returns_section(op), raises_section(), section("Notes"),
              op.notes, "\n", examples_section(op));
}

}  // namespace tensor_ops
