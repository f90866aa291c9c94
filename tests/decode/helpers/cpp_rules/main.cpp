// Says of each program, one JSON in a line of standard input, what the rules in C++ say of it, then
// what the C++ backend lacks to run it, then which values share memory with one that the same node
// writes; with tabs between. The kinds are those of the table that it was
// compiled with; all of them have kernels here, which are never called.
#include <iostream>

#include "declaration/errors.h"
#include "decode/executor/node_kernels.h"
#include "decode/program/program.h"
#include "decode/program/value_plan.h"
#include "isa/isa.h"
#include "isa/levels.h"
#include "node_files.h"

// node_kernels.cpp, which comes before this file, declares them.
#define DEFINE_NODE_AT(kind, level, name)  \
  namespace tensor_ops::level {            \
  const decode::NodeKernels kind##_node{}; \
  }
#define DEFINE_NODE(kind) TENSOR_OPS_FOR_EACH_LEVEL(DEFINE_NODE_AT, kind)
TENSOR_OPS_FOR_EACH_NODE(DEFINE_NODE)

namespace tensor_ops {

const IsaChoice& isa_choice() {
  static const IsaChoice choice;
  return choice;
}

}  // namespace tensor_ops

namespace {

using namespace tensor_ops;

std::string lacking(const decode::Program& program) {
  try {
    decode::require_kernels(program);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

std::string sharing(const decode::Program& program) {
  const auto none = [](const decode::NodeKind&) { return false; };
  const auto phases = decode::phases_of(program, {none, none});
  const std::vector<bool> shares_scratch(phases.size());
  const decode::ValuePlan plan = decode::plan_values(program, phases, shares_scratch);
  std::string names;
  for (const decode::Node& node : program.nodes)
    for (const std::size_t one : node.outputs)
      for (const std::size_t other : node.outputs)
        if (one != other && plan.offset[one] == plan.offset[other])
          names += program.values[one].name + " ";
  return names;
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    try {
      const decode::Program program = decode::parse_program(line);
      std::cout << "valid\t" << lacking(program) << "\t" << sharing(program) << "\n";
    } catch (const ValueError& error) {
      std::cout << error.what() << "\t\t\n";
    }
  }
}
