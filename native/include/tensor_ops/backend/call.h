// A call of an op by name: its arguments, sorted into the order of the op's declaration.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensor_ops/abi.h"
#include "tensor_ops/backend/array.h"
#include "tensor_ops/backend/detail/nearest.h"
#include "tensor_ops/backend/detail/text.h"
#include "tensor_ops/backend/errors.h"

namespace tensor_ops::backend {

struct CallOptions {
  int num_threads = 0;     // 0: as many as pay; of no meaning on a GPU
  void* stream = nullptr;  // the CUDA stream that device arrays are used on
};

// An array by the name of its parameter, or by its place where the name is empty.
template <class ArrayType>
struct Named {
  template <class T, class = std::enable_if_t<std::is_convertible<T&&, ArrayType>::value>>
  Named(T&& by_place) : array(std::forward<T>(by_place)) {}
  Named(std::string parameter, ArrayType value)
      : name(std::move(parameter)), array(std::move(value)) {}
  Named(const char* parameter, ArrayType value)
      : Named(detail::not_null(parameter, "the name of an array"), std::move(value)) {}

  std::string name;
  ArrayType array;
};
using Input = Named<ConstArray>;
using Output = Named<Array>;

// A scalar, a choice or a flag by its name: {"eps", 1e-6}, {"approximate", "none"} or
// {"interleaved", true}.
struct Setting {
  Setting(std::string parameter, const char* word)
      : name(std::move(parameter)), choice(word == nullptr ? "" : word), is_number(false) {}
  template <class T, class = std::enable_if_t<std::is_arithmetic<T>::value>>
  Setting(std::string parameter, T value)
      : name(std::move(parameter)),
        choice(value != T{} ? "True" : "False"),
        number(static_cast<double>(value)),
        is_number(!std::is_same<T, bool>::value) {}
  template <class T>
  Setting(const char* parameter, T value)
      : Setting(detail::not_null(parameter, "the name of a setting"), value) {}

  std::string name, choice;
  double number = 0;
  bool is_number;
};

namespace detail {

[[noreturn]] inline void refuse_name(const tensor_ops_op& op, const std::string& what,
                                     const std::string& name,
                                     const std::vector<std::string>& names) {
  throw TypeError(std::string(op.name) + "() has no " + what + " " + in_quotes(name) + "; " +
                  did_you_mean(name, names) +
                  "It has: " + (names.empty() ? std::string("none") : joined(names, ", ")));
}

// The arrays in the order of `names`; those that are missing stand for none.
template <class ArrayType>
std::vector<ArrayType> in_order(const tensor_ops_op& op, const std::string& what,
                                const std::vector<Named<ArrayType>>& given,
                                const std::vector<std::string>& names) {
  std::vector<ArrayType> found(names.size());
  std::vector<bool> is_given(names.size());
  for (std::size_t i = 0; i < given.size(); ++i) {
    std::size_t place = i;
    if (!given[i].name.empty()) {
      place = static_cast<std::size_t>(std::find(names.begin(), names.end(), given[i].name) -
                                       names.begin());
      if (place == names.size()) refuse_name(op, what, given[i].name, names);
    } else if (place >= names.size()) {
      throw TypeError(std::string(op.name) + "() takes " + std::to_string(names.size()) + " " +
                      what + (names.size() == 1 ? " (" : "s (") + joined(names, ", ") + "), got " +
                      std::to_string(given.size()));
    }
    if (is_given[place])
      throw TypeError(std::string(op.name) + "() got two arrays for " + in_quotes(names[place]) +
                      "; give it once");
    is_given[place] = true;
    found[place] = given[i].array;
  }
  return found;
}

inline std::vector<std::string> input_names(const tensor_ops_op& op) {
  std::vector<std::string> names;
  for (std::int32_t i = 0; i < op.parameter_count; ++i)
    if (op.parameters[i].kind <= TENSOR_OPS_HALF_ROWS) names.push_back(op.parameters[i].name);
  return names;
}

// The index of the word that a setting says, of a parameter's two.
inline std::int32_t index_of_choice(const tensor_ops_op& op, const tensor_ops_parameter& parameter,
                                    const Setting& setting) {
  const std::string expected = std::string(op.name) + "(): " + parameter.name + " must be " +
                               in_quotes(parameter.choices[0]) + " or " +
                               in_quotes(parameter.choices[1]) + ", got ";
  if (setting.is_number) throw TypeError(expected + "a number");
  for (std::int32_t i = 0; i < 2; ++i)
    if (setting.choice == parameter.choices[i]) return i;
  throw ValueError(expected + in_quotes(setting.choice));
}

// The scalars in the order of the declaration, with the default values of those that are not given,
// and the index of the choice.
inline std::pair<std::vector<double>, std::int32_t> sorted_settings(
    const tensor_ops_op& op, const std::vector<Setting>& given) {
  std::vector<std::string> names;
  std::vector<bool> is_used(given.size());
  std::vector<double> scalars;
  std::int32_t choice = 0;
  for (std::int32_t i = 0; i < op.parameter_count; ++i) {
    const tensor_ops_parameter& parameter = op.parameters[i];
    if (parameter.kind <= TENSOR_OPS_HALF_ROWS) continue;
    names.push_back(parameter.name);
    const Setting* found = nullptr;
    for (std::size_t k = 0; k < given.size(); ++k) {
      if (given[k].name != parameter.name) continue;
      if (found != nullptr)
        throw TypeError(std::string(op.name) + "() got " + in_quotes(parameter.name) +
                        " twice; give it once");
      found = &given[k];
      is_used[k] = true;
    }
    if (parameter.kind != TENSOR_OPS_SCALAR) {
      if (found != nullptr) choice = index_of_choice(op, parameter, *found);
      continue;
    }
    if (found != nullptr && !found->is_number)
      throw TypeError(std::string(op.name) + "(): " + parameter.name + " must be a number, got " +
                      in_quotes(found->choice));
    scalars.push_back(found == nullptr ? parameter.default_value : found->number);
  }
  for (std::size_t k = 0; k < given.size(); ++k)
    if (!is_used[k]) refuse_name(op, "setting", given[k].name, names);
  return {scalars, choice};
}

}  // namespace detail
}  // namespace tensor_ops::backend
