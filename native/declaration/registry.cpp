#include "declaration/registry.h"

#include <algorithm>
#include <cstring>

#include "launch/op.h"

namespace tensor_ops {
namespace {

// A static variable of a function, since registrations of other files may run before this file's
// own static variables are initialised.
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
