// The instruction-set level in use: the highest that is compiled in, that the CPU has, and that the
// environment variable TENSOR_OPS_CPP_ISA allows.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "declaration/shared.h"

namespace tensor_ops {

struct Level {
  const char* name;
  bool (*cpu_has)();
  std::vector<const char*> features;  // what code of this level uses
};

// Lowest first; the order of Op::kernels.
TENSOR_OPS_SHARED const std::vector<Level>& compiled_levels();

struct IsaChoice {
  std::size_t index = 0;  // into compiled_levels(), where reason is empty
  std::string reason;     // why no level can be used
};

// Made once, at the first call.
TENSOR_OPS_SHARED const IsaChoice& isa_choice();

// An environment variable that is 1 or 0, or neither where it is unset or empty. The value of one
// that is something else is a reason why no level can be used.
enum class Switch { kDefault, kOff, kOn };
Switch environment_switch(const char* name);

// Empty where the machine does not say.
TENSOR_OPS_SHARED std::string cpu_brand();

}  // namespace tensor_ops
