// The phases of a program as the kernel runs them, and in which order of rows their matrices are
// packed.
#pragma once

#include <cstdint>
#include <vector>

#include "decode/kernels/plan.h"
#include "decode/program/fusion.h"
#include "decode/program/program.h"

namespace tensor_ops::decode {

struct MatrixRow {
  std::size_t tensor, row;
};

// A phase whose pointers are still null, with what they will point to: values, tensors and a cache
// of the program, or kAbsent. Attention reads and writes no value.
struct LoweredPhase {
  DevicePhase phase{};
  std::size_t x = kAbsent, residual = kAbsent, y = kAbsent;
  std::size_t norm = kAbsent, cos = kAbsent, sin = kAbsent;
  std::size_t cache = kAbsent;
  // The format and rows of a table or a matrix; the rows in the order in which they are packed.
  WeightFormat format{};
  std::vector<MatrixRow> rows;
};

// A place where a launch ends, since a node that exchanges values among ranks runs on the host.
struct Cut {
  std::size_t phase;     // the one after it
  std::size_t from, to;  // values
  std::size_t node;
};

struct LoweredProgram {
  std::vector<Phase> fused;
  std::vector<LoweredPhase> phases;
  std::vector<Cut> cuts;  // in the order of phases
  // The node that chooses tokens from logits; on the host where these come from several ranks.
  std::size_t chooser = kAbsent;  // a node
  bool chooses_on_host = false;
};

// Throws Error, whose text is the reason, where the kernel cannot run a program.
LoweredProgram lower(const Program& program);

}  // namespace tensor_ops::decode
