// How the ranks that run the shards of a program together exchange values: all give a vector of one
// length to all, and meet.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "declaration/shared.h"
#include "decode/program/program.h"
#include "decode/program/step.h"
#include "decode/ranks/exchange_buffers.h"

namespace tensor_ops::decode {

// Identifies an exchange. Ranks that exchange values at the same time must agree on it: else
// they run different programs, or different steps of one.
struct ExchangeTag {
  // Differs, almost surely, where steps have other tokens, positions, slots or selected rows.
  std::uint64_t arrays;
  std::uint32_t step, node, rows, columns;

  std::size_t count() const { return std::size_t{rows} * columns; }
};

// Callbacks of an exchange into its surroundings. Each may throw, which ends the exchange.
class RankCalls {
 public:
  virtual ~RankCalls() = default;
  // Called about twenty times a second by a rank that waits: for how long it has, and for whom.
  virtual void while_waiting(double seconds, const std::vector<std::size_t>& ranks) = 0;
  // Gives `count` numbers to all ranks, and receives those of each, one rank behind the other.
  // `memory` keeps both vectors.
  virtual void exchange(const std::shared_ptr<float>& memory, float* sent, float* received,
                        std::size_t count) = 0;
  // Throws the error that says what another rank has done.
  [[noreturn]] virtual void fail(const std::string& message, std::size_t rank) = 0;
};

// The first line of what an error says.
TENSOR_OPS_SHARED std::string first_line_of(const std::exception& error);

class TENSOR_OPS_SHARED Exchange {
 public:
  Exchange(std::size_t rank, std::size_t world_size) : rank_(rank), world_size_(world_size) {}
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  virtual ~Exchange();

  std::size_t rank() const { return rank_; }
  std::size_t world_size() const { return world_size_; }
  // How many exchanges there have been.
  std::uint32_t num_done() const { return num_done_; }

  // The vectors of one exchange, by num_done() before it and their length. What was received stays
  // until this rank begins the exchange after the next.
  virtual ExchangeBuffers buffers(std::uint32_t num_done, std::size_t count) const = 0;
  // Called before each step: what is exchanged from now on belongs to it.
  void begin_step(const Step& step);
  // Called by one thread, once all have written what is sent: waits until all ranks have done so,
  // at the same node and with as many rows of as many columns. Throws what RankCalls does. After
  // that the ranks cannot meet again.
  void meet(std::size_t node, std::size_t rows, std::size_t columns);
  // Why the ranks cannot meet again; empty as long as they can.
  const std::string& failure() const { return failure_; }
  // The least of a number that each rank has. They meet at `node`, which is beyond all nodes.
  std::size_t least(std::size_t number, std::size_t node);
  // For how long the last meet() had no processor, because it had given it away.
  std::chrono::nanoseconds paused() const { return paused_; }
  // Tells the others that this rank will not come any more: `why` goes on after "rank 1". Only the
  // first call counts.
  virtual void leave(const std::string& why) noexcept = 0;

 protected:
  virtual void wait_for_others(const ExchangeTag& tag) = 0;
  // Throws RankCalls::fail() unless what another rank is at is what this one is at.
  void require_equal(const ExchangeTag& own, const ExchangeTag& other, std::size_t rank,
                     RankCalls& calls) const;

  std::chrono::nanoseconds paused_{};

 private:
  const std::size_t rank_, world_size_;
  std::uint32_t num_done_ = 0;
  ExchangeTag step_{};  // the tags of a step begin so
  std::string failure_;
};

}  // namespace tensor_ops::decode
