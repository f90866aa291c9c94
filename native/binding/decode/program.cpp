#include "binding/decode/program.h"

#include <mutex>

namespace tensor_ops {
namespace {

// The program whose text was parsed last.
struct LastProgram {
  std::mutex in_use;
  std::string json;
  std::shared_ptr<const decode::Program> program;
  std::size_t parsed = 0;
};

LastProgram& last_program() {
  static LastProgram last;
  return last;
}

}  // namespace

std::shared_ptr<const decode::Program> program_of(const std::string& json) {
  LastProgram& last = last_program();
  const std::lock_guard<std::mutex> lock(last.in_use);
  if (!last.program || json != last.json) {
    ++last.parsed;
    last.program = std::make_shared<const decode::Program>(decode::parse_program(json));
    last.json = json;
  }
  return last.program;
}

std::size_t parsed_programs() {
  const std::lock_guard<std::mutex> lock(last_program().in_use);
  return last_program().parsed;
}

}  // namespace tensor_ops
