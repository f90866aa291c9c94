// Says of each program, one JSON in a line of standard input, what the rules in C++ say of it, and
// behind a tab what the C++ backend lacks to run it. The kinds are those of the table that it was
// compiled with; all of them are entered as if the backend had kernels for them.
#include <iostream>

#include "declaration/errors.h"
#include "decode/executor/node_kernels.h"
#include "decode/program/program.h"
#include "isa/isa.h"

namespace tensor_ops {

const IsaChoice& isa_choice() {
  static const IsaChoice choice;
  return choice;
}

}  // namespace tensor_ops

int main() {
  using namespace tensor_ops;
  for (const decode::NodeKind& kind : decode::node_kinds())
    decode::NodeRegistration(kind.name, nullptr, {});
  std::string line;
  while (std::getline(std::cin, line)) {
    try {
      const decode::Program program = decode::parse_program(line);
      try {
        decode::require_kernels(program);
        std::cout << "valid\t\n";
      } catch (const Error& error) {
        std::cout << "valid\t" << error.what() << "\n";
      }
    } catch (const ValueError& error) {
      std::cout << error.what() << "\t\n";
    }
  }
}
