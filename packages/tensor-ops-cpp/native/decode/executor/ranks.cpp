// How a step meets the other ranks: one worker of the team does, at nodes that exchange values.
#include "decode/executor/executable.h"

namespace tensor_ops::decode {

// All workers have met, so that what they send is written. They meet again once the others have
// sent theirs.
bool Executable::exchange(std::size_t worker, std::size_t node, std::size_t rows) {
  if (worker == 0) {
    meet_ranks(node, rows, nodes_[node].sent_columns);
    team_->note_pause(worker, exchange_->paused());
  }
  team_->meet(worker);
  return !exchange_error_;
}

void Executable::meet_ranks(std::size_t node, std::size_t rows, std::size_t columns) noexcept {
  const auto number = [](std::size_t size) { return static_cast<std::uint32_t>(size); };
  try {
    exchange_->meet({hash_of_arrays_, step_.number, number(node), number(rows), number(columns)});
  } catch (const std::exception& error) {
    failure_ = first_line_of(error);
    exchange_error_ = std::current_exception();
  }
}

void Executable::require_exchanged() {
  if (!exchange_error_) return;
  std::exception_ptr error;
  error.swap(exchange_error_);
  std::rethrow_exception(error);
}

// Ranks find NaN in different nodes, where some have it in their share of a value and others in the
// sum of all shares.
std::size_t Executable::least_of_ranks(std::size_t number) {
  if (!exchange_) return number;
  const ExchangeBuffers buffers = exchange_->buffers(exchange_->num_done(), 1);
  *buffers.sent = static_cast<float>(number);
  meet_ranks(nodes_.size(), 1, 1);
  require_exchanged();
  return least_received(buffers, exchange_->world_size());
}

}  // namespace tensor_ops::decode
