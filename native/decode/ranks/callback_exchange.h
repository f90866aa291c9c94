// Ranks that share no memory: whoever calls the executor carries their values.
#pragma once

#include <memory>

#include "decode/ranks/exchange.h"

namespace tensor_ops::decode {

class TENSOR_OPS_SHARED CallbackExchange final : public Exchange {
 public:
  // The bytes of the vectors, of up to `most` numbers.
  static std::size_t bytes(std::size_t world_size, std::size_t most);

  // calls: outlives the object.
  CallbackExchange(std::size_t rank, std::size_t world_size, std::size_t most, RankCalls& calls);

  ExchangeBuffers buffers(std::uint32_t num_done, std::size_t count) const override;
  // Does nothing: the error that this rank raises ends the others.
  void leave(const std::string&) noexcept override {}

 private:
  void wait_for_others(const ExchangeTag& tag) override;

  RankCalls& calls_;
  const std::shared_ptr<float> memory_;
  float *sent_, *received_;
};

}  // namespace tensor_ops::decode
