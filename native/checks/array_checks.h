// The checks of a call's arrays, all made before any work, for Python's arrays and for those of the
// C interface.
//
// An Array is what a caller gave for one argument, an ArrayView with
//
//     bool is_given() const;
//     bool is_output;
//     bool is_numpy() const;
//     std::string dtype_text(const Array&);
//
// Errors are TypeError and ValueError. Their messages name the op and the argument, what it was and
// what it should be.
#pragma once

#include <algorithm>
#include <string>

#include "checks/overlap.h"
#include "declaration/declaration.h"
#include "declaration/dtype.h"
#include "declaration/errors.h"
#include "declaration/op_call.h"
#include "launch/op.h"

namespace tensor_ops {

// The arguments of a call while they are checked.
template <class Array>
struct CallArguments {
  int arrays = 0;           // array arguments, given or not
  Array array[kMaxArrays];  // in declaration order
  ParameterKind kind[kMaxArrays];
  const char* name[kMaxArrays];
  Array out[kMaxOutputs];           // not given where the result is to be allocated
  double scalar[kMaxScalars] = {};  // in declaration order
  std::size_t variant = 0;          // the value of the op's choice or flag

  // Once views of all outputs are there, given or allocated.
  OpCall to_op_call(const Op& op) const {
    OpCall call;  // not set to zeros, which takes time that small calls show
    call.op = &op;
    call.inputs = arrays;
    call.kind = kind;
    const ArrayView** view = call.array;
    for (int k = 0; k < arrays; ++k) *view++ = array[k].is_given() ? &array[k] : nullptr;
    for (std::size_t i = 0; i < op.outputs.size(); ++i) *view++ = &out[i];
    call.scalars = scalar;
    call.variant = variant;
    return call;
  }
};

// The name of output i in messages: "out", or "out[i]" where there are several.
inline const char* output_name(const Declaration& op, std::size_t i) {
  static constexpr const char* kNames[kMaxOutputs] = {"out[0]", "out[1]", "out[2]"};
  return op.outputs.size() == 1 ? "out" : kNames[i];
}

namespace checks {

inline std::string array_shape_text(const ArrayView& array) {
  return shape_text(array.dims, array.shape);
}

template <class Array>
void require_supported(const Declaration& op, const Array& x) {
  if (x.dtype != kDTypes) return;
  const char* name = op.parameters[0].name;
  throw TypeError(text(op.name, ": ", name, " has dtype ", dtype_text(x),
                       "; the supported dtypes are ", kSupportedDTypes, "; convert it ",
                       x.is_numpy() ? text("with ", name, ".astype") : "first"));
}

// Requires the dtype of argument `like`, or float32 where that may be instead.
template <class Array>
void require_dtype(const Declaration& op, const char* name, const Array& array, int like,
                   bool may_be_float32, const CallArguments<Array>& call) {
  const DType wanted = call.array[like].dtype;
  if (array.dtype == wanted || (may_be_float32 && array.dtype == kFloat32)) return;
  std::string advice;
  if (array.is_output)
    advice = text("give an array of dtype ", kDTypeNames[wanted]);
  else if (array.is_numpy())
    advice = text("convert it with ", name, ".astype(", call.name[like], ".dtype)");
  else
    advice = "convert it first";
  throw TypeError(text(op.name, ": ", name, " must have ", call.name[like], "'s dtype ",
                       kDTypeNames[wanted], may_be_float32 ? ", or float32" : "", ", got ",
                       dtype_text(array), "; ", advice));
}

// The first parameter (a weight, cosines) has x's dtype or float32, and the second (a bias, sines)
// the dtype of the first. Rows have x's dtype; where their declaration allows float32, the first of
// them has either, and the others the dtype of the first.
template <class Array>
void require_input_dtype(const Declaration& op, const Parameter& parameter, int k,
                         const CallArguments<Array>& call) {
  const bool is_rows = parameter.kind == ParameterKind::kRows;
  int like = 0;
  for (int i = 1; i < k && (parameter.may_be_float32 || !is_rows) && like == 0; ++i)
    if (call.array[i].is_given() && (call.kind[i] == ParameterKind::kRows) == is_rows) like = i;
  const bool may_be_float32 =
      parameter.may_be_float32 && like == 0 && is_half_dtype(call.array[0].dtype);
  require_dtype(op, parameter.name, call.array[k], like, may_be_float32, call);
}

// Requires the shape of another argument.
inline void require_same_shape(const Declaration& op, const char* name, const ArrayView& array,
                               const char* like_name, const ArrayView& like) {
  if (array.dims == like.dims && std::equal(like.shape, like.shape + like.dims, array.shape))
    return;
  throw ValueError(text(op.name, ": ", name, " must have ", like_name, "'s shape ",
                        array_shape_text(like), ", got ", array_shape_text(array)));
}

inline void require_row(const Declaration& op, const char* name, const ArrayView& array,
                        const ArrayView& x) {
  if (array.dims == 1 && array.shape[0] == x.row_length()) return;
  const char* x_name = op.parameters[0].name;
  const std::ptrdiff_t expected[1] = {x.row_length()};
  throw ValueError(text(op.name, ": ", name, " must have shape ", shape_text(1, expected),
                        ", one element for each of ", x_name, "'s last axis (", x_name,
                        " has shape ", array_shape_text(x), "), got ", array_shape_text(array)));
}

inline void require_half_rows(const Declaration& op, const char* name, const ArrayView& array,
                              const ArrayView& x) {
  const int dims = x.dims, offset = dims - array.dims;
  std::ptrdiff_t target[kMaxDims];
  std::copy_n(x.shape, dims, target);
  target[dims - 1] /= 2;
  bool fits = offset >= 0;
  for (int d = 0; fits && d < array.dims; ++d)
    fits = array.shape[d] == target[d + offset] || array.shape[d] == 1;
  if (fits) return;
  throw ValueError(text(op.name, ": ", name, " must broadcast to ", shape_text(dims, target), ", ",
                        op.parameters[0].name, "'s shape with half the last axis, got ",
                        array_shape_text(array)));
}

template <class Array>
void require_x_rank(const Declaration& op, const Array& x) {
  const char* name = op.parameters[0].name;
  if (op.walk == Walk::kElements) return;
  if (x.dims == 0)
    throw ValueError(text(op.name, ": ", name, " must have at least one axis, got a 0-d array; ",
                          x.is_numpy() ? text("use ", name, ".reshape(1)") : "give it one"));
  if (x.row_length() % 2 == 0) return;
  const bool has_half_rows =
      std::any_of(op.parameters.begin(), op.parameters.end(),
                  [](const Parameter& p) { return p.kind == ParameterKind::kHalfRows; });
  if (has_half_rows)
    throw ValueError(text(op.name, ": ", name, "'s last axis must have even length, got shape ",
                          array_shape_text(x)));
}

template <class Array>
void check_against_inputs(const Declaration& op, const CallArguments<Array>& call, std::size_t i) {
  const Array& out = call.out[i];
  for (int k = 0; k < call.arrays; ++k) {
    const Array& input = call.array[k];
    if (!input.is_given()) continue;
    const bool may_be_input = call.kind[k] == ParameterKind::kRows;
    if (may_be_input && overlap::is_same_view(out, input)) continue;
    if (overlap::may_share_memory(out, input))
      throw ValueError(text(op.name, ": ", output_name(op, i), " overlaps ", call.name[k],
                            may_be_input ? " without being exactly the same view" : "",
                            "; give an array of its own memory"));
  }
}

}  // namespace checks

// Checks the array argument that was added last, beside those before it.
template <class Array>
void check_input(const Declaration& op, const Parameter& parameter,
                 const CallArguments<Array>& call) {
  const int k = call.arrays - 1;
  const Array& array = call.array[k];
  if (k == 0) {
    checks::require_supported(op, array);
    return checks::require_x_rank(op, array);
  }
  checks::require_input_dtype(op, parameter, k, call);
  switch (parameter.kind) {
    case ParameterKind::kRows:
      return checks::require_same_shape(op, parameter.name, array, call.name[0], call.array[0]);
    case ParameterKind::kHalfRows:
      return checks::require_half_rows(op, parameter.name, array, call.array[0]);
    default:
      return checks::require_row(op, parameter.name, array, call.array[0]);
  }
}

// Checks the dtype and the shape of output i.
template <class Array>
void check_output(const Declaration& op, std::size_t i, const CallArguments<Array>& call) {
  const char* name = output_name(op, i);
  const Array& out = call.out[i];
  const std::size_t like = op.outputs[i].like;
  checks::require_dtype(op, name, out, static_cast<int>(like), false, call);
  checks::require_same_shape(op, name, out, call.name[like], call.array[like]);
}

// Checks outputs that were all given.
template <class Array>
void check_overlap(const Declaration& op, const CallArguments<Array>& call) {
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    const Array& out = call.out[i];
    if (overlap::may_overlap_itself(out))
      throw ValueError(text(
          op.name, ": ", output_name(op, i),
          " overlaps itself (several elements share memory); give an array ",
          out.is_numpy() ? "made by numpy.empty" : "whose elements each have memory of their own"));
    checks::check_against_inputs(op, call, i);
    for (std::size_t before = 0; before < i; ++before)
      if (overlap::may_share_memory(call.out[before], out))
        throw ValueError(text(op.name, ": ", output_name(op, before), " and ", output_name(op, i),
                              " overlap; give separate arrays"));
  }
}

}  // namespace tensor_ops
