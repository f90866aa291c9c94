// The declaration of an op: its arguments and outputs as data, from which calls are checked and the
// binding makes the signature and the docstring.
#pragma once

#include <cstddef>
#include <vector>

#include "launch/call.h"

namespace tensor_ops {

enum class Kind {
  kRows,         // an array of x's shape; the first argument, x itself, is one
  kRow,          // an array of shape (n,), n being the length of x's last axis
  kOptionalRow,  // the same, or None
  kHalfRows,     // an array that broadcasts to x's shape with n/2 in the place of n; n must be even
  kScalar,       // a finite real number
  kChoice,       // one of two strings: selects the variant
  kFlag,         // a bool: selects the variant
};

struct Parameter {
  Kind kind;
  const char* name;
  const char* description;
  double default_value = 0;  // of a scalar
  bool non_negative = false;
  const char* choices[2] = {nullptr, nullptr};  // the first is the default
  bool keyword_only = false;
  bool is_wide = false;            // may be float32 beside a half first argument
  const char* dtype_of = nullptr;  // the argument whose dtype it has; null: the first

  bool is_array() const { return kind <= Kind::kHalfRows; }
  bool is_required() const { return is_array() && kind != Kind::kOptionalRow; }
  bool selects_variant() const { return kind == Kind::kChoice || kind == Kind::kFlag; }
};

inline Parameter rows(const char* name, const char* description) {
  return {Kind::kRows, name, description};
}
inline Parameter row(const char* name, const char* description) {
  return {Kind::kRow, name, description};
}
inline Parameter optional_row(const char* name, const char* description) {
  return {Kind::kOptionalRow, name, description};
}
inline Parameter half_rows(const char* name, const char* description) {
  return {Kind::kHalfRows, name, description};
}
inline Parameter scalar(const char* name, double value, const char* description) {
  return {Kind::kScalar, name, description, value};
}
inline Parameter non_negative(const char* name, double value, const char* description) {
  return {Kind::kScalar, name, description, value, true};
}
inline Parameter choice(const char* name, const char* first, const char* second,
                        const char* description) {
  return {Kind::kChoice, name, description, 0, false, {first, second}};
}
inline Parameter keyword_flag(const char* name, const char* description) {
  return {Kind::kFlag, name, description, 0, false, {"False", "True"}, true};
}

// An array that may be float32 beside a half first argument; its values are used as they are.
inline Parameter wide(Parameter parameter) {
  parameter.is_wide = true;
  return parameter;
}
// An array that has the dtype of an earlier one.
inline Parameter like(const char* earlier, Parameter parameter) {
  parameter.dtype_of = earlier;
  return parameter;
}

struct Output {
  const char* name;
  const char* description;
  const char* dtype_of = nullptr;  // the argument whose dtype it has; null: the first
};

// How an op walks its arrays.
enum class Walk {
  kElements,  // every element alone: arrays may be cut anywhere
  kRows,      // the last axis is a row, computed as one
};

constexpr std::size_t kMaxParameters = 8;

struct Op {
  const char* name;
  Walk walk;
  const char* summary;
  const char* formula;
  std::vector<Parameter> parameters;
  std::vector<Output> outputs;
  const char* notes;
  Launcher launch;
};

// All ops, by name.
const std::vector<const Op*>& registered_ops();

// Enters an op of static storage duration into registered_ops().
struct Registration {
  explicit Registration(const Op& op);
};

}  // namespace tensor_ops
