// The ranks that run the shards of a program together, as Python gives them.
#pragma once

#include <cstddef>
#include <memory>

#include "binding/python/nanobind.h"
#include "decode/program/program.h"
#include "decode/ranks/exchange.h"

namespace tensor_ops {

// The argument `ranks` of compile_program(): None, or a RankGroup of tensor_ops_decode.
class GivenRanks {
 public:
  // Throws TypeError or ValueError.
  GivenRanks(const char* function, const nanobind::object& ranks);

  std::size_t rank() const { return rank_; }
  std::size_t world_size() const { return world_size_; }
  // The number of this rank among those of its machine; 0 for one rank. Throws TypeError, and what
  // the object throws.
  std::size_t rank_here() const;
  // How the nodes of this program exchange values: in a window that all ranks share, if they have
  // one, else by the object's own exchange(). Null for one rank, and where no node exchanges any.
  // All ranks have to ask for it. most_rows: that run together. Throws ValueError for the program
  // of another rank, and what the object does.
  std::shared_ptr<decode::Exchange> exchange(const decode::Program& program,
                                             std::size_t most_rows = decode::kAbsent) const;

 private:
  nanobind::object ranks_;
  std::size_t rank_ = 0, world_size_ = 1;
};

// Returns made(), which makes the executor of a rank without the GIL. If it throws, the other ranks
// are told.
template <class Make>
auto made_for_ranks(const std::shared_ptr<decode::Exchange>& exchange, Make made) {
  try {
    return without_gil(made);
  } catch (const std::exception& error) {
    if (exchange) exchange->leave("has failed: " + decode::first_line_of(error));
    throw;
  }
}

}  // namespace tensor_ops
