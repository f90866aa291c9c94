#include "binding/ops/docstring.h"

#include "binding/ops/arguments.h"
#include "declaration/dtype.h"
#include "declaration/errors.h"
#include "python/backend.h"

namespace tensor_ops {
namespace {

std::string quoted(const char* choice) { return text("{'", choice, "'"); }

std::string type_of(const Declaration& op, const Parameter& parameter) {
  const char* x = op.parameters[0].name;
  const std::string dtype = text("dtype of ", x, parameter.may_be_float32 ? " or float32" : "");
  switch (parameter.kind) {
    case ParameterKind::kRows:
      if (parameter.name == op.parameters[0].name)
        return text(kArrayType, op.walk == Walk::kRowwise ? ", shape (..., n)" : "");
      return text(kArrayType, ", shape ", parameter.may_be_float32 ? text("of ", x, ",") : "and",
                  " ", dtype);
    case ParameterKind::kRow:
      return text(kArrayType, ", shape (n,), ", dtype);
    case ParameterKind::kOptionalRow:
      return text(kArrayType, ", shape (n,), ", dtype, ", or None");
    case ParameterKind::kHalfRows:
      return text(kArrayType, " that broadcasts to (..., n/2), ", dtype);
    case ParameterKind::kScalar:
      return "float";
    case ParameterKind::kChoice:
      return text(quoted(parameter.choices[0]), ", '", parameter.choices[1], "'}");
    case ParameterKind::kFlag:
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

std::string parameters_section(const Declaration& op) {
  std::string result = section("Parameters");
  for (const Parameter& parameter : op.parameters)
    result += entry(parameter.name,
                    type_of(op, parameter) + (parameter.is_required() ? "" : ", optional"),
                    parameter.description);
  constexpr const char* kTuples[kMaxOutputs] = {"", "tuple of two ", "tuple of three "};
  result += entry(
      "out", text(kTuples[op.outputs.size() - 1], kArrayType, ", optional"),
      text("Where the result goes, of the shape and dtype given below. It may be exactly the view "
           "that a\n    full-shape input is; it must not overlap an input in any other way."));
  if (kKeyword) result += entry(kKeyword, kKeywordType, kKeywordDescription);
  return result;
}

std::string returns_section(const Declaration& op) {
  std::string result = section("Returns");
  for (const Output& output : op.outputs)
    result += entry(output.name,
                    text(kArrayType, ", shape and dtype of ", op.parameters[output.like].name),
                    text(output.description, " C-contiguous unless out was given."));
  return result;
}

std::string raises_section() {
  return text(section("Raises"), "TypeError\n    An argument ", kNoArray,
              ", has an unsupported\n    dtype (supported: ", kSupportedDTypes,
              "),\n    foreign byte order, or another dtype than it must have.\n"
              "ValueError\n    A shape, a number or an overlap with out is not allowed",
              kMoreValueErrors, ".\n", kMoreErrors);
}

// Which arguments may be float32 beside an x of a half dtype.
std::string mixtures_note(const Declaration& op) {
  std::string rows, parameters;
  for (const Parameter& parameter : op.parameters) {
    if (!parameter.may_be_float32) continue;
    std::string& names = parameter.kind == ParameterKind::kRows ? rows : parameters;
    names += text(names.empty() ? "" : " and ", parameter.name);
  }
  if (parameters.empty()) return {};
  return text("Where ", op.parameters[0].name, " is float16 or bfloat16, ", parameters,
              " may be float32 instead", rows.empty() ? "" : text(", and so may ", rows),
              ":\nsuch values are used as they are, not rounded.\n");
}

// An argument that the op takes, for x of shape (2, 4).
const char* example_argument(ParameterKind kind) {
  switch (kind) {
    case ParameterKind::kRow:
      return "np.ones(4, np.float32)";
    case ParameterKind::kHalfRows:
      return "np.ones((2, 2), np.float32)";
    default:
      return "np.ones((2, 4), np.float32)";
  }
}

std::string examples_section(const Declaration& op) {
  std::string setup, names;
  for (const Parameter& parameter : op.parameters) {
    if (!parameter.is_required()) continue;
    setup += text(">>> ", parameter.name, " = ", example_argument(parameter.kind), "\n");
    names += text(names.empty() ? "" : ", ", parameter.name);
  }
  const std::string outputs = joined(op.outputs, [](const Output& output) { return output.name; });
  return text(section("Examples"), ">>> import numpy as np\n>>> import ", kModule, "\n", setup,
              ">>> ", outputs, " = ", kModule, ".", op.name, "(", names, ")\n>>> ",
              op.outputs[0].name, ".shape\n(2, 4)\n");
}

}  // namespace

std::string docstring(const Declaration& op) {
  return text(op.name, signature(op), "\n--\n\n", op.summary, "\n\n    ", op.formula, "\n",
              parameters_section(op), returns_section(op), raises_section(), section("Notes"),
              mixtures_note(op), op.notes, "\n", examples_section(op));
}

}  // namespace tensor_ops
