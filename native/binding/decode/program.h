// The programs that Python gives as texts of JSON.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "decode/program/program.h"

namespace tensor_ops {

// A program is loaded by several calls with the same text, which is parsed once. Throws what
// decode::parse_program() throws.
std::shared_ptr<const decode::Program> program_of(const std::string& json);

// How many texts were parsed, wrong ones too.
std::size_t parsed_programs();

}  // namespace tensor_ops
