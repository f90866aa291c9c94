# Writes tensor_ops/backend/ops.h: a method of each op, made from the declarations of the C++ backend.
#
#   cmake -DDECLARATIONS=packages/tensor-ops-cpp/native/ops -DHEADER=.../tensor_ops/backend/ops.h \
#         -P native/cmake/ops_header.cmake
#
# It reads what native/declaration/declaration.h allows in DECLARE_OP(name, cost, {...}), and stops at
# anything else. Ops whose names begin with an underscore are left out. A header that is up to date is
# not written again.
cmake_minimum_required(VERSION 3.21)

foreach(required IN ITEMS DECLARATIONS HEADER)
  if(NOT DEFINED ${required})
    message(FATAL_ERROR "ops_header.cmake needs -D${required}=...")
  endif()
endforeach()

# `rest` is what of the file is still to be read; `token` is what was read last: a name, a number, a
# punctuation mark, or a string with its quotes.
macro(next_token)
  string(REGEX REPLACE "^([ \t\r\n]|//[^\n]*)+" "" rest "${rest}")
  if(rest MATCHES "^(\"([^\"\\]|\\\\.)*\"|[A-Za-z0-9_.:+-]+|[(){},])")
    set(token "${CMAKE_MATCH_1}")
    string(LENGTH "${token}" length)
    string(SUBSTRING "${rest}" ${length} -1 rest)
  else()
    string(SUBSTRING "${rest}" 0 40 beginning)
    stop("cannot read what begins with '${beginning}'")
  endif()
endmacro()

function(stop problem)
  message(FATAL_ERROR "${file}: ${problem}; native/cmake/ops_header.cmake reads declarations as "
                      "native/declaration/declaration.h has them, so extend it for new ones")
endfunction()

macro(expect wanted)
  next_token()
  if(NOT token STREQUAL "${wanted}")
    stop("DECLARE_OP(${op}): expected '${wanted}', got '${token}'")
  endif()
endmacro()

# A name or a number.
macro(read_word result)
  next_token()
  if(NOT token MATCHES "^[A-Za-z0-9_.:+-]+$")
    stop("DECLARE_OP(${op}): expected a name or a number, got '${token}'")
  endif()
  set(${result} "${token}")
endmacro()

# Adjacent strings, as one, with C++'s escapes and without quotes.
macro(read_string result)
  next_token()
  if(NOT token MATCHES "^\"")
    stop("DECLARE_OP(${op}): expected a string, got '${token}'")
  endif()
  set(text "")
  while(TRUE)
    string(LENGTH "${token}" length)
    math(EXPR length "${length} - 2")
    string(SUBSTRING "${token}" 1 ${length} token)
    string(APPEND text "${token}")
    if(NOT rest MATCHES "^([ \t\r\n]|//[^\n]*)*\"")
      break()
    endif()
    next_token()
  endwhile()
  set(${result} "${text}")
endmacro()

# Whether another element follows in a list that `close` ends; a comma may stand before the end.
macro(read_separator close result)
  next_token()
  set(${result} FALSE)
  if(token STREQUAL ",")
    if(rest MATCHES "^([ \t\r\n]|//[^\n]*)*[)}]")
      expect("${close}")
    else()
      set(${result} TRUE)
    endif()
  elseif(NOT token STREQUAL "${close}")
    stop("DECLARE_OP(${op}): expected ',' or '${close}', got '${token}'")
  endif()
endmacro()

# Passes over an expression, up to the comma after it.
macro(skip_expression)
  set(depth 0)
  while(TRUE)
    next_token()
    if(token MATCHES "^[({]$")
      math(EXPR depth "${depth} + 1")
    elseif(token MATCHES "^[)}]$")
      math(EXPR depth "${depth} - 1")
    elseif(token STREQUAL "," AND depth EQUAL 0)
      break()
    endif()
  endwhile()
endmacro()

# A text as lines of a comment. A function, since a macro would read the backslashes of its arguments.
function(as_comment text indent result)
  string(REPLACE "\\n" "\n" text "${text}")
  string(REPLACE "\\\"" "\"" text "${text}")
  string(REGEX REPLACE "\n+ *" "\n  // ${indent}" text "${text}")
  set(${result} "  // ${indent}${text}\n" PARENT_SCOPE)
endfunction()

# "gelu_mul" as "GeluMul".
function(camel_case name result)
  string(REGEX MATCHALL "[A-Za-z0-9]+" words "${name}")
  set(joined "")
  foreach(word IN LISTS words)
    string(SUBSTRING "${word}" 0 1 first)
    string(SUBSTRING "${word}" 1 -1 others)
    string(TOUPPER "${first}" first)
    string(APPEND joined "${first}${others}")
  endforeach()
  set(${result} "${joined}" PARENT_SCOPE)
endfunction()

# One parameter: appends to the parts of the method, which are inputs, settings and their notes.
macro(read_parameter)
  read_word(kind)
  expect("(")
  read_string(parameter)
  if(kind MATCHES "^(rows|wide_rows|row|half_rows|optional_row)$")
    string(APPEND inputs "${line_of_inputs}const ConstArray& ${parameter},")
    set(line_of_inputs " ")
    string(APPEND input_values "${separator_of_inputs}${parameter}.abi()")
    set(separator_of_inputs ", ")
    math(EXPR input_count "${input_count} + 1")
    set(note "")
    if(kind STREQUAL "row")
      set(note " A row.")
    elseif(kind STREQUAL "optional_row")
      set(note " A row, or {} for none.")
    elseif(kind STREQUAL "half_rows")
      set(note " Half as long as x along the last axis.")
    endif()
  elseif(kind MATCHES "^(scalar|non_negative)$")
    expect(",")
    read_word(value)
    string(APPEND settings "${line_of_settings}double ${parameter} = ${value},")
    set(line_of_settings " ")
    string(APPEND scalar_values "${separator_of_scalars}${parameter}")
    set(separator_of_scalars ", ")
    math(EXPR scalar_count "${scalar_count} + 1")
    set(note "")
  elseif(kind STREQUAL "choice")
    expect(",")
    read_string(first)
    expect(",")
    read_string(second)
    declare_choice("${parameter}" "${first}" "${second}")
    string(APPEND settings "${line_of_settings}${enum} ${parameter} = ${enum}::k${first_camel},")
    set(line_of_settings " ")
    set_choice("static_cast<int>(${parameter})")
    set(note "")
  elseif(kind STREQUAL "keyword_flag")
    string(APPEND settings "${line_of_settings}bool ${parameter} = false,")
    set(line_of_settings " ")
    set_choice("${parameter} ? 1 : 0")
    set(note "")
  else()
    stop("DECLARE_OP(${op}): a parameter is declared with '${kind}', which is unknown here")
  endif()
  expect(",")
  read_string(description)
  read_separator(")" more)
  if(more)
    stop("DECLARE_OP(${op}): ${kind}(\"${parameter}\", ...) has more arguments than expected")
  endif()
  as_comment("${parameter}: ${description}${note}" "" description)
  if(kind MATCHES "rows?$")
    string(APPEND input_notes "${description}")
  else()
    string(APPEND setting_notes "${description}")
  endif()
endmacro()

macro(set_choice value)
  if(NOT choice STREQUAL "0")
    stop("DECLARE_OP(${op}): it has two choices or flags, and the C interface has room for one")
  endif()
  set(choice "${value}")
endmacro()

# The enumeration of a choice, which ops with a parameter of this name share.
macro(declare_choice parameter first second)
  camel_case("${parameter}" enum)
  camel_case("${first}" first_camel)
  camel_case("${second}" second_camel)
  set(declared "enum class ${enum} { k${first_camel}, k${second_camel} }")
  if(NOT DEFINED enum_${enum})
    set(enum_${enum} "${declared}")
    string(APPEND enums "// What the parameter `${parameter}` may be.\n${declared}@SEMICOLON@\n\n")
  elseif(NOT enum_${enum} STREQUAL declared)
    stop("DECLARE_OP(${op}): '${parameter}' has other words than in an op before: give it a new name")
  endif()
endmacro()

# One output.
macro(read_output)
  expect("{")
  read_string(output)
  expect(",")
  read_string(description)
  read_separator("}" more)
  if(more)
    read_word(like)
    read_separator("}" more)
  endif()
  string(APPEND outputs "${line_of_outputs}const Array& ${output},")
  set(line_of_outputs " ")
  string(APPEND output_values "${separator_of_outputs}${output}.abi()")
  set(separator_of_outputs ", ")
  math(EXPR output_count "${output_count} + 1")
  as_comment("${output}: ${description}" "" description)
  string(APPEND output_notes "${description}")
endmacro()

# An array of the method's own, as std::array has it.
function(as_array type count values result)
  if(count EQUAL 0)
    set(${result} "std::array<${type}, 0>{}" PARENT_SCOPE)
  else()
    set(${result} "std::array<${type}, ${count}>{{${values}}}" PARENT_SCOPE)
  endif()
endfunction()

# The declaration that `rest` begins with, after "DECLARE_OP(": appends to `methods`.
macro(read_declaration)
  set(op "?")
  read_word(op)
  expect(",")
  skip_expression()
  expect("{")
  read_string(name)
  if(NOT name STREQUAL op)
    stop("DECLARE_OP(${op}): its declaration is of '${name}'")
  endif()
  expect(",")
  read_word(walk)
  expect(",")
  read_string(summary)
  expect(",")
  read_string(formula)
  expect(",")
  foreach(part IN ITEMS inputs input_values outputs output_values settings scalar_values
                        input_notes output_notes setting_notes separator_of_inputs separator_of_outputs separator_of_scalars
                        line_of_inputs line_of_outputs line_of_settings)
    set(${part} "")
  endforeach()
  foreach(counted IN ITEMS input_count output_count scalar_count choice)
    set(${counted} 0)
  endforeach()
  expect("{")
  set(follows TRUE)
  while(follows)
    read_parameter()
    read_separator("}" follows)
  endwhile()
  expect(",")
  expect("{")
  set(follows TRUE)
  while(follows)
    read_output()
    read_separator("}" follows)
  endwhile()
  expect(",")
  read_string(ignored)
  read_separator("}" follows)
  if(follows)
    stop("DECLARE_OP(${op}): there is more than one text after the outputs")
  endif()
  expect(")")
  if(NOT op MATCHES "^_")
    as_comment("${summary}" "" summary)
    as_comment("${formula}" "    " formula)
    as_array(tensor_ops_array ${input_count} "${input_values}" input_array)
    as_array(tensor_ops_array ${output_count} "${output_values}" output_array)
    as_array(double ${scalar_count} "${scalar_values}" scalar_array)
    if(settings)
      string(PREPEND settings "\n      ")
    endif()
    string(APPEND methods
           "\n${summary}  //\n${formula}  //\n${input_notes}${output_notes}${setting_notes}"
           "  void ${op}(\n      ${inputs}\n      ${outputs}${settings}\n"
           "      CallOptions options = {}) const {\n"
           "    self().run_op(\"${op}\",\n"
           "                  ${input_array},\n"
           "                  ${output_array},\n"
           "                  ${scalar_array}, ${choice}, options)@SEMICOLON@\n  }\n")
    math(EXPR op_count "${op_count} + 1")
  endif()
endmacro()

set(methods "")
set(enums "")
set(op_count 0)
file(GLOB files LIST_DIRECTORIES FALSE "${DECLARATIONS}/*.cpp")
list(SORT files)
foreach(file IN LISTS files)
  file(READ "${file}" rest)
  string(FIND "${rest}" "DECLARE_OP(" at)
  if(at EQUAL -1)
    stop("has no DECLARE_OP(")
  endif()
  while(NOT at EQUAL -1)
    math(EXPR at "${at} + 11")
    string(SUBSTRING "${rest}" ${at} -1 rest)
    read_declaration()
    string(FIND "${rest}" "DECLARE_OP(" at)
  endwhile()
endforeach()
if(op_count EQUAL 0)
  message(FATAL_ERROR "${DECLARATIONS} has no op: set DECLARATIONS to the folder of the C++ backend's "
                      "ops, packages/tensor-ops-cpp/native/ops")
endif()

set(text "// The methods of the ops. Made by native/cmake/ops_header.cmake from the declarations of the C++
// backend@SEMICOLON@ do not edit.
#pragma once

#include <array>

#include \"tensor_ops/abi.h\"
#include \"tensor_ops/backend/array.h\"
#include \"tensor_ops/backend/call.h\"

namespace tensor_ops::backend {

${enums}// The ops as methods of a backend. Outputs come after the inputs, and have the shape of the first
// input@SEMICOLON@ one may be exactly the array that an input of that shape is.
template <class Self>
class Ops {
 public:${methods}
 protected:
  ~Ops() = default@SEMICOLON@

 private:
  const Self& self() const { return static_cast<const Self&>(*this)@SEMICOLON@ }
}@SEMICOLON@

}  // namespace tensor_ops::backend
")
# CMake takes a semicolon for the end of a list's element, so that it is put in last.
string(REPLACE "@SEMICOLON@" ";" text "${text}")
set(before "")
if(EXISTS "${HEADER}")
  file(READ "${HEADER}" before)
endif()
if(NOT before STREQUAL text)
  file(WRITE "${HEADER}" "${text}")
endif()
