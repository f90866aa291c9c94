#include "decode/ranks/callback_exchange.h"

#include <chrono>
#include <cstring>

#include "declaration/waiting.h"
#include "decode/program/sizes.h"

namespace tensor_ops::decode {
namespace {

// A tag travels behind the numbers that it is about.
constexpr std::size_t kTag = sizeof(ExchangeTag) / sizeof(float);
static_assert(sizeof(ExchangeTag) % sizeof(float) == 0);

std::size_t num_floats(std::size_t world_size, std::size_t most) {
  return (world_size + 1) * (most + kTag);
}

}  // namespace

std::size_t CallbackExchange::bytes(std::size_t world_size, std::size_t most) {
  return size_product("what ranks exchange", num_floats(world_size, most), sizeof(float));
}

CallbackExchange::CallbackExchange(std::size_t rank, std::size_t world_size, std::size_t most,
                                   RankCalls& calls)
    : Exchange(rank, world_size),
      calls_(calls),
      memory_(new float[num_floats(world_size, most)](), std::default_delete<float[]>()),
      sent_(memory_.get()),
      received_(sent_ + most + kTag) {}

// The threads of this rank may write the next vector while others of them still read what was
// received, which changes in meet() alone: all of them come there first.
ExchangeBuffers CallbackExchange::buffers(std::uint32_t, std::size_t count) const {
  return {sent_, received_, count + kTag};
}

void CallbackExchange::wait_for_others(const ExchangeTag& tag) {
  using Clock = std::chrono::steady_clock;
  const std::size_t stride = tag.count() + kTag;
  std::memcpy(sent_ + tag.count(), &tag, sizeof tag);
  const auto began = Clock::now();
  const auto used = thread_cpu_time();
  calls_.exchange(memory_, sent_, received_, stride);
  paused_ = (Clock::now() - began) - (thread_cpu_time() - used);
  for (std::size_t r = 0; r < world_size(); ++r) {
    ExchangeTag other;
    std::memcpy(&other, received_ + r * stride + tag.count(), sizeof other);
    require_equal(tag, other, r, calls_);
  }
}

}  // namespace tensor_ops::decode
