#include "python/docstring.h"

#include "arrays/dtypes.h"
#include "launch/errors.h"
#include "python/arguments.h"

namespace tensor_ops {
namespace {

std::string quoted(const char* choice) { return text("{'", choice, "'"); }

std::string type_of(const Op& op, const Parameter& parameter) {
  const char* x = op.parameters[0].name;
  const std::string dtype = text("dtype of ", x, parameter.may_be_float32 ? " or float32" : "");
  switch (parameter.kind) {
    case Kind::kRows:
      if (parameter.name == op.parameters[0].name)
        return op.walk == Walk::kRows ? "numpy.ndarray, shape (..., n)" : "numpy.ndarray";
      return parameter.may_be_float32 ? text("numpy.ndarray, shape of ", x, ", ", dtype)
                                      : text("numpy.ndarray, shape and ", dtype);
    case Kind::kRow:
      return text("numpy.ndarray, shape (n,), ", dtype);
    case Kind::kOptionalRow:
      return text("numpy.ndarray, shape (n,), ", dtype, ", or None");
    case Kind::kHalfRows:
      return text("numpy.ndarray that broadcasts to (..., n/2), ", dtype);
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
  std::string result = section("Parameters");
  for (const Parameter& parameter : op.parameters)
    result += entry(parameter.name,
                    type_of(op, parameter) + (parameter.is_required() ? "" : ", optional"),
                    parameter.description);
  const bool is_single = op.outputs.size() == 1;
  result += entry(
      "out", is_single ? "numpy.ndarray, optional" : "tuple of two numpy.ndarray, optional",
      text("Where the result goes, of the shape and dtype given below. It may be exactly the view "
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
    result += entry(output.name,
                    text("numpy.ndarray, shape and dtype of ", op.parameters[output.like].name),
                    text(output.description, " C-contiguous unless out was given."));
  return result;
}

std::string raises_section() {
  return text(section("Raises"),
              "TypeError\n    An argument is not an array, has an unsupported dtype (supported: ",
              kSupportedDTypes,
              "),\n    foreign byte order, or a dtype other than the one asked for.\n"
              "ValueError\n    A shape, a number or an overlap with out is not allowed.\n");
}

// Which arguments may be float32 beside a half x; those that are no rows all or none of them.
std::string mixtures_note(const Op& op) {
  std::string rows, parameters;
  for (const Parameter& parameter : op.parameters) {
    if (!parameter.may_be_float32) continue;
    std::string& names = parameter.kind == Kind::kRows ? rows : parameters;
    names += text(names.empty() ? "" : " and ", parameter.name);
  }
  if (parameters.empty()) return {};
  return text("Where ", op.parameters[0].name, " is float16 or bfloat16, ", parameters,
              " may be float32 instead", rows.empty() ? "" : text(", and so may ", rows),
              ":\nsuch values are used as they are, not rounded.\n");
}

}  // namespace

std::string docstring(const Op& op) {
  return text(op.name, signature(op), "\n--\n\n", op.summary, "\n\n    ", op.formula, "\n",
              parameters_section(op), returns_section(op), raises_section(), section("Notes"),
              mixtures_note(op), op.notes, "\n");
}

}  // namespace tensor_ops
