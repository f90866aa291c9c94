// The declaration of an op: its arguments and outputs as data, from which the launcher checks calls
// and the binding makes the signature and the docstring.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "launch/run.h"

namespace tensor_ops {

enum class Kind {
  kRows,         // an array of x's shape; the first argument, x itself, is one
  kRow,          // an array of shape (n,), n being the length of x's last axis
  kOptionalRow,  // the same, or None
  kHalfRows,     // an array that broadcasts to x's shape with n/2 in the place of n; n must be even
  kScalar,       // a finite real number
  kChoice,       // one of two strings: selects the kernels' variant
  kFlag,         // a bool: selects the kernels' variant
};

struct Parameter {
  Kind kind;
  const char* name;
  const char* description;
  double default_value = 0;  // of a scalar
  bool non_negative = false;
  const char* choices[kMaxVariants] = {nullptr, nullptr};  // the first is the default
  bool keyword_only = false;
  bool may_be_float32 = false;  // of an array, beside an x of a half dtype

  bool is_array() const { return kind <= Kind::kHalfRows; }
  bool is_required() const { return is_array() && kind != Kind::kOptionalRow; }
  bool selects_variant() const { return kind == Kind::kChoice || kind == Kind::kFlag; }
};

inline Parameter rows(const char* name, const char* description) {
  return {Kind::kRows, name, description};
}
// The arrays of an op that are not rows share one dtype: x's or, beside a half x, float32.
inline Parameter may_be_float32(Parameter parameter) {
  parameter.may_be_float32 = true;
  return parameter;
}
inline Parameter wide_rows(const char* name, const char* description) {
  return may_be_float32(rows(name, description));
}
inline Parameter row(const char* name, const char* description) {
  return may_be_float32({Kind::kRow, name, description});
}
inline Parameter optional_row(const char* name, const char* description) {
  return may_be_float32({Kind::kOptionalRow, name, description});
}
inline Parameter half_rows(const char* name, const char* description) {
  return may_be_float32({Kind::kHalfRows, name, description});
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

// What a call does with an array. What an error advises for an input, such as to convert it, makes
// a copy: the caller would never see a result that is written there.
enum class Use { kInput, kOutput };

struct Output {
  const char* name;
  const char* description;
  std::size_t like = 0;  // the argument whose shape and dtype it has, one of x's shape
};

// How an op walks its arrays.
enum class Walk {
  kElements,  // every element alone: contiguous arrays are one long row, cut anywhere
  kRows,      // the last axis is a row, computed as one
};

// About how many nanoseconds one thread takes for an element of x that is in the cache, by dtype:
// float32, float16, bfloat16, float64. Decides from which size on threads pay. Measured by
// benchmarks/threads.py; a CPU or an instruction-set level that takes longer gets threads a little
// later than it could.
using Cost = std::array<double, kDTypes>;

struct Declaration {
  const char* name;
  Walk walk;
  Cost cost;
  const char* summary;
  const char* formula;
  std::vector<Parameter> parameters;
  std::vector<Output> outputs;
  const char* notes;
};

constexpr std::size_t kMaxArrays = 8;  // array arguments and outputs together
constexpr std::size_t kMaxParameters = 8;

struct Op : Declaration {
  std::vector<const KernelTable*> kernels;  // one per compiled level, lowest first

  Op(Declaration declaration, std::vector<const KernelTable*> by_level)
      : Declaration(std::move(declaration)), kernels(std::move(by_level)) {}
};

// All ops, by name. An op whose name starts with an underscore is for the tests.
const std::vector<const Op*>& registered_ops();

// Enters an op of static storage duration into registered_ops().
struct Registration {
  explicit Registration(const Op& op);
};

}  // namespace tensor_ops
