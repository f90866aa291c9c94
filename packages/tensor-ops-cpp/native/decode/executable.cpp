#include "decode/executable.h"

#include <algorithm>

#include "declaration/errors.h"
#include "decode/node_kind.h"
#include "isa/float_mode.h"

namespace tensor_ops::decode {

Executable::~Executable() = default;

bool Executable::reads_from_caller(std::size_t tensor) const {
  for (const Node& node : program_.nodes)
    for (std::size_t s = 0; s < node.weights.size(); ++s)
      if (node.kind->weights[s].form == WeightForm::kRows && node.weights[s][0] == tensor)
        return true;
  return false;
}

void Executable::run(std::size_t num_tokens, std::size_t num_selected) {
  // Before the lock, which may have been held when the process forked.
  if (!owner_.is_current())
    throw Error(
        "run: the process was forked after compile_program(), and the child has none of its "
        "threads; compile the program again in the child");
  const std::lock_guard<std::mutex> lock(running_);
  if (!team_) throw Error("run: the executable is closed; compile the program again");
  Step step = step_;
  step.num_tokens = num_tokens;
  step.num_selected = num_selected;
  arrays_.check(program_.limits, step);
  step_ = step;
  team_->run([](void* executable,
                std::size_t thread) { static_cast<Executable*>(executable)->work(thread); },
             this);
}

// Every thread goes through all nodes and meets the others where the plan says so, even around
// nodes that have no rows in this step.
void Executable::work(std::size_t thread) {
  const DefaultFloatMode mode;
  for (Compiled& node : nodes_) {
    if (node.meets_before) team_->meet();
    Share& share = node.shares[thread];
    share.rows = node.rows == Rows::kTokens ? step_.num_tokens : step_.num_selected;
    if (share.rows == 0) continue;
    node.kernels.first(share);
    if (!node.kernels.second) continue;
    if (node.kernels.meets_if_few || share.rows > kFewRows) team_->meet();
    node.kernels.second(share);
  }
}

void Executable::close() {
  std::unique_lock<std::mutex> lock(running_, std::defer_lock);
  if (owner_.is_current()) lock.lock();
  team_.reset();
  nodes_.clear();
  streams_.clear();
  own_.clear();
  for (Memory* memory : {&parameters_, &caches_, &values_, &shared_}) *memory = Memory();
  tensors_.clear();
}

}  // namespace tensor_ops::decode
