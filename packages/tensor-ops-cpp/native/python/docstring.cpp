#include "python/docstring.h"

#include "launch/arguments.h"
#include "launch/dtypes.h"
#include "launch/errors.h"

namespace tensor_ops {
namespace {

std::string quoted(const char* choice) { return text("{'", choice, "'"); }

std::string type_of(const Op& op, const Parameter& parameter) {
  const char* x = op.parameters[0].name;
  switch (parameter.kind) {
    case Kind::kRows:
      if (parameter.name == op.parameters[0].name)
        return op.walk == Walk::kRows ? "numpy.ndarray, shape (..., n)" : "numpy.ndarray";
      return text("numpy.ndarray, shape and dtype of ", x);
    case Kind::kRow:
      return text("numpy.ndarray, shape (n,), dtype of ", x);
    case Kind::kOptionalRow:
      return text("numpy.ndarray, shape (n,), dtype of ", x, ", or None");
    case Kind::kHalfRows:
      return text("numpy.ndarray that broadcasts to (..., n/2), dtype of ", x);
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
      "out", is_single ? "numpy.ndarray, optional" : "tuple of two numpy.ndarray, optional",
      text("Where the result goes, of ", x,
           "'s shape and dtype. It may be exactly the view "
           "that a\n    full-shape input is; it must not overlap an input in any other way."));
  result +=
      entry("num_threads", "int, optional",
            "Threads to use, up to 64 or the number of CPUs. By default as many as pay, up to\n    "
            "get_num_threads().");
  return result;
}

std::string returns_section(const Op& op) {
  std::string result = section("Returns");
  for (const Output& output : op.outputs)
    result += entry(output.name, text("numpy.ndarray, shape and dtype of ", op.parameters[0].name),
                    text(output.description, " C-contiguous unless out was given."));
  return result;
}

std::string raises_section() {
  return text(section("Raises"),
              "TypeError\n    An argument is not an array, has an unsupported dtype (supported: ",
              kSupportedDTypes,
              "),\n    foreign byte order, or not the first argument's dtype.\n"
              "ValueError\n    A shape, a number or an overlap with out is not allowed.\n");
}

}  // namespace

std::string docstring(const Op& op) {
  return text(op.name, signature(op), "\n--\n\n", op.summary, "\n\n    ", op.formula, "\n",
              parameters_section(op), returns_section(op), raises_section(), section("Notes"),
              op.notes, "\n");
}

}  // namespace tensor_ops
