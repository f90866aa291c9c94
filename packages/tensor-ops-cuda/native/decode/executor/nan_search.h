// Where the NaN of a step begins.
#pragma once

#include <cstddef>

#include "decode/executor/device_program.h"
#include "decode/program/step.h"

namespace tensor_ops::decode {

// Whether what a phase has left for a token of a step, in the row of a launch, has NaN: queries,
// the key and the value, or any other row.
bool has_left_nan(const DeviceProgram& program, std::size_t phase, std::size_t row,
                  const Step& step, std::size_t token, cudaStream_t stream);

}  // namespace tensor_ops::decode
