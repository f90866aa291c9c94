#include "launch/declaration.h"

#include <algorithm>
#include <cstring>

namespace tensor_ops {
namespace {

// A function's static, for registrations run before or after any other file's statics.
std::vector<const Op*>& registry() {
  static std::vector<const Op*> ops;
  return ops;
}

}  // namespace

Registration::Registration(const Op& op) {
  const auto by_name = [](const Op* a, const Op* b) { return std::strcmp(a->name, b->name) < 0; };
  auto& ops = registry();
  ops.insert(std::upper_bound(ops.begin(), ops.end(), &op, by_name), &op);
}

const std::vector<const Op*>& registered_ops() { return registry(); }

}  // namespace tensor_ops
