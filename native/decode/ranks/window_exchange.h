// Ranks of one machine, which share a window of memory. It has, one behind the other:
//
//     a header for each rank    RankHeader, on cache lines of its own
//     two buffers for each      of `most` numbers, rounded up to whole cache lines
//
// A rank writes into its own header and buffers alone, but for the number of those that sleep until
// it comes. It gives its values in its buffers by turns: those of exchange k in buffer k % 2. Then
// it says in its header that it has arrived at k, waits until all others have, and reads buffer
// k % 2 of every rank.
//
// Two buffers are enough for one meeting in each exchange. A rank writes what it gives in exchange
// k + 2 into the buffer that had its values of exchange k. By then it has seen every rank arrive at
// k + 1, and all threads of a rank are done with reading what exchange k gave before one of them
// says that the rank has arrived at k + 1. So nobody reads the buffer that is written. For the same
// reason two tags are enough, and no rank is ever more than one exchange ahead of another one, so
// that 32 bits tell their numbers apart, also when they wrap around.
//
// Memory order: the threads of a rank write its values, meet, and one of them stores `arrived` with
// release order. A thread of another rank loads it with acquire order, then meets the threads of
// its own rank. Meetings of threads are acquire and release operations too (Team::meet()). So what
// was given happens before it is read; and what is read in exchange k, before the rank stores that
// it has arrived at k + 1, happens before anybody writes there what is given in exchange k + 2.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "decode/ranks/exchange.h"

namespace tensor_ops::decode {

// A window is filled with zeros when the ranks get it, which are the values of a new header.
struct alignas(64) RankHeader {
  std::atomic<std::uint32_t> arrived;       // at this exchange, from 1 on
  std::atomic<std::uint32_t> sleepers;      // ranks that may be asleep until `arrived` changes
  std::atomic<std::uint32_t> has_left;      // the rank will not come any more, and has said why
  std::uint32_t buffer_lines;               // cache lines of a buffer
  ExchangeTag tags[2];                      // by exchange % 2
  alignas(64) std::uint32_t rank_to_blame;  // the cause is this rank
  char why[956];                            // what goes on after "rank 1", ends with a zero
};
static_assert(sizeof(RankHeader) == 1024 && offsetof(RankHeader, rank_to_blame) == 64);
// Atomic objects that several processes share must neither be locks nor depend on their address.
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

class TENSOR_OPS_SHARED WindowExchange final : public Exchange {
 public:
  // The bytes of a window for vectors of up to `most` numbers.
  static std::size_t bytes(std::size_t world_size, std::size_t most);

  // The window begins at a multiple of 64. Exchanges are counted from what its headers have, which
  // is zero in a new one. calls: outlives the object.
  WindowExchange(std::size_t rank, std::size_t world_size, std::size_t most,
                 std::shared_ptr<unsigned char> window, RankCalls& calls);
  ~WindowExchange() override;

  ExchangeBuffers buffers(std::uint32_t num_done, std::size_t count) const override;
  void leave(const std::string& why) noexcept override { leave(why, rank()); }

 private:
  class Wait;

  void wait_for_others(const ExchangeTag& tag) override;
  void leave(const std::string& why, std::size_t rank_to_blame) noexcept;
  RankHeader& header(std::size_t rank) const {
    return reinterpret_cast<RankHeader*>(window_.get())[rank];
  }

  const std::size_t stride_;  // bytes of the buffers of a rank
  const std::shared_ptr<unsigned char> window_;
  RankCalls& calls_;
  const int process_;          // a forked child is no rank
  const std::uint32_t first_;  // the exchange at which this rank has arrived in the window
};

}  // namespace tensor_ops::decode
