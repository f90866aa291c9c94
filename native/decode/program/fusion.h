// Which nodes of a program an executor runs together: a product with what comes before and after
// it, so that no value between them is stored.
// Tested by tests/decode/programs/test_fusion.py.
#pragma once

#include <cstddef>
#include <vector>

#include "decode/program/program.h"

namespace tensor_ops::decode {

// Nodes that run as one: a product and others, or a node alone. The rows of a norm or a gate are
// multiplied, biases are added to the sums, then a residual is, or a gate is applied.
struct Phase {
  std::size_t main;                  // the product, or the node alone
  std::size_t before = kAbsent;      // the norm or gate, a node, whose rows the product multiplies
  std::size_t after = kAbsent;       // the gate, a node, of what the product gives
  std::size_t residual = kAbsent;    // a value that is added to what the product gives
  std::vector<std::size_t> nodes{};  // all of them, in order
  std::vector<std::size_t> reads{}, writes{};  // values
};

// Nodes that an executor can run together with a product, beside biases.
struct FusionRules {
  using IsFused = bool (*)(const NodeKind&);
  IsFused before, after;  // whether it runs nodes of this kind before or after products
};

// The phases of a program, in an order in which they can run. A node is in one of them.
std::vector<Phase> phases_of(const Program& program, const FusionRules& rules);

}  // namespace tensor_ops::decode
