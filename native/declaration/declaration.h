// The declaration of an op: its arguments and outputs as data. The checks of a call, the signature
// and the docstring follow from it.
#pragma once

#include <cstddef>
#include <vector>

namespace tensor_ops {

enum class ParameterKind {
  kRows,         // an array of x's shape; the first argument, x itself, is one
  kRow,          // an array of shape (n,), n being the length of x's last axis
  kOptionalRow,  // the same, or None
  kHalfRows,     // an array that broadcasts to x's shape with n/2 in the place of n; n must be even
  kScalar,       // a finite real number
  kChoice,       // one of two strings: selects the variant of the kernels
  kFlag,         // a bool: selects the variant of the kernels
};

struct Parameter {
  ParameterKind kind;
  const char* name;
  const char* description;
  double default_value = 0;  // of a scalar
  bool non_negative = false;
  const char* choices[2] = {nullptr, nullptr};  // the first is the default
  bool keyword_only = false;
  bool may_be_float32 = false;  // of an array, beside an x of a half dtype

  bool is_array() const { return kind <= ParameterKind::kHalfRows; }
  bool is_required() const { return is_array() && kind != ParameterKind::kOptionalRow; }
  bool selects_variant() const {
    return kind == ParameterKind::kChoice || kind == ParameterKind::kFlag;
  }
};

inline Parameter rows(const char* name, const char* description) {
  return {ParameterKind::kRows, name, description};
}
// Such an array may be float32 beside an x of a half dtype. The arrays of an op that are not rows
// share one dtype.
inline Parameter may_be_float32(Parameter parameter) {
  parameter.may_be_float32 = true;
  return parameter;
}
inline Parameter wide_rows(const char* name, const char* description) {
  return may_be_float32(rows(name, description));
}
inline Parameter row(const char* name, const char* description) {
  return may_be_float32({ParameterKind::kRow, name, description});
}
inline Parameter optional_row(const char* name, const char* description) {
  return may_be_float32({ParameterKind::kOptionalRow, name, description});
}
inline Parameter half_rows(const char* name, const char* description) {
  return may_be_float32({ParameterKind::kHalfRows, name, description});
}
inline Parameter scalar(const char* name, double value, const char* description) {
  return {ParameterKind::kScalar, name, description, value};
}
inline Parameter non_negative(const char* name, double value, const char* description) {
  return {ParameterKind::kScalar, name, description, value, true};
}
inline Parameter choice(const char* name, const char* first, const char* second,
                        const char* description) {
  return {ParameterKind::kChoice, name, description, 0, false, {first, second}};
}
inline Parameter keyword_flag(const char* name, const char* description) {
  return {ParameterKind::kFlag, name, description, 0, false, {"False", "True"}, true};
}

struct Output {
  const char* name;
  const char* description;
  std::size_t like = 0;  // the argument whose shape and dtype it has; like a row: summed over rows
};

// The way in which an op walks its arrays.
enum class Walk {
  kElements,  // every element alone: contiguous arrays are one long row, cut anywhere
  kRowwise,   // the last axis is a row, computed as one
};

constexpr std::size_t kMaxParameters = 8;
constexpr int kMaxArrays = 6;  // array arguments and outputs together
constexpr int kMaxOutputs = 3;
constexpr int kMaxScalars = 2;
constexpr int kMaxDims = 64;  // NumPy's, and PyTorch's

struct Declaration {
  const char* name;
  Walk walk;
  const char* summary;
  const char* formula;
  std::vector<Parameter> parameters;
  std::vector<Output> outputs;
  const char* notes;

  bool is_sum(std::size_t i) const {
    return parameters[outputs[i].like].kind == ParameterKind::kRow;
  }
};

}  // namespace tensor_ops
