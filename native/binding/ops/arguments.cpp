#include "binding/ops/arguments.h"

#include <memory>

#include "declaration/errors.h"
#include "python/backend.h"

namespace tensor_ops {
namespace {

Name out("out");

// As repr() writes it.
std::string number_text(double value) {
  const std::unique_ptr<char, decltype(&PyMem_Free)> digits(
      PyOS_double_to_string(value, 'r', 0, Py_DTSF_ADD_DOT_0, nullptr), &PyMem_Free);
  if (!digits) throw PythonError();
  return digits.get();
}

std::string default_text(const Parameter& parameter) {
  switch (parameter.kind) {
    case ParameterKind::kOptionalRow:
      return "None";
    case ParameterKind::kScalar:
      return number_text(parameter.default_value);
    case ParameterKind::kChoice:
      return text("'", parameter.choices[0], "'");
    case ParameterKind::kFlag:
      return parameter.choices[0];
    default:
      return {};
  }
}

// Parameters that are keywords only are the last.
bool are_too_many(const Declaration& op, std::size_t positional) {
  return positional > op.parameters.size() ||
         (positional > 0 && op.parameters[positional - 1].keyword_only);
}

std::size_t positional_limit(const Declaration& op) {
  std::size_t limit = 0;
  for (const Parameter& parameter : op.parameters) limit += !parameter.keyword_only;
  return limit;
}

bool is_name(PyObject* name, const char* text) {
  return PyUnicode_CompareWithASCIIString(name, text) == 0;
}

PyObject** slot_named(const Declaration& op, const ParameterNames& names, Arguments& arguments,
                      PyObject* name) {
  if (name == out.get()) return &arguments.out;
  for (std::size_t i = 0; i < op.parameters.size(); ++i)
    if (name == names.of[i]) return &arguments.value[i];
  if (is_name(name, "out")) return &arguments.out;
  for (std::size_t i = 0; i < op.parameters.size(); ++i)
    if (is_name(name, op.parameters[i].name)) return &arguments.value[i];
  if (kKeyword && is_name(name, kKeyword)) return &arguments.keyword;
  throw TypeError(text(op.name, ": unexpected keyword argument ", repr_text(name),
                       "; the arguments are ", signature(op)));
}

void require_all(const Declaration& op, const Arguments& arguments) {
  PyObject* const* value = arguments.value;
  for (const Parameter& parameter : op.parameters)
    if (!*value++ && parameter.is_required())
      throw TypeError(text(op.name, ": missing required argument '", parameter.name,
                           "'; the arguments are ", signature(op)));
}

}  // namespace

ParameterNames interned_names(const Declaration& op) {
  ParameterNames names;
  for (std::size_t i = 0; i < op.parameters.size(); ++i) {
    names.of[i] = PyUnicode_InternFromString(op.parameters[i].name);
    if (!names.of[i]) throw PythonError();
  }
  return names;
}

Arguments sort_arguments(const Declaration& op, const ParameterNames& names, PyObject* const* args,
                         Py_ssize_t positional, PyObject* keyword_names) {
  Arguments arguments;
  const auto given = static_cast<std::size_t>(positional);
  if (are_too_many(op, given))
    throw TypeError(text(op.name, ": takes ", positional_limit(op), " positional arguments but ",
                         given, " were given; the arguments are ", signature(op)));
  for (std::size_t i = 0; i < given; ++i) arguments.value[i] = args[i];
  const Py_ssize_t keywords = keyword_names ? PyTuple_Size(keyword_names) : 0;
  for (Py_ssize_t i = 0; i < keywords; ++i) {
    PyObject* name = PyTuple_GetItem(keyword_names, i);
    PyObject** slot = slot_named(op, names, arguments, name);
    if (*slot) throw TypeError(text(op.name, ": multiple values for argument ", repr_text(name)));
    *slot = args[positional + i];
  }
  require_all(op, arguments);
  return arguments;
}

std::string signature(const Declaration& op) {
  std::string text = "(";
  bool is_keyword_only = false;
  for (const Parameter& parameter : op.parameters) {
    if (parameter.keyword_only && !is_keyword_only) text += "*, ";
    is_keyword_only = parameter.keyword_only;
    text += parameter.name;
    if (!parameter.is_required()) text += "=" + default_text(parameter);
    text += ", ";
  }
  if (!is_keyword_only) text += "*, ";
  return text + "out=None" + (kKeyword ? std::string(", ") + kKeyword + "=None)" : ")");
}

}  // namespace tensor_ops
