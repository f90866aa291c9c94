// Where an exchange among ranks has its values.
#pragma once

#include <cstddef>

namespace tensor_ops::decode {

// Vectors of one length: what this rank gives to all, and what rank r has given, which begins at
// received + r * stride once the ranks have met.
struct ExchangeBuffers {
  float* sent;
  const float* received;
  std::size_t stride;
};

}  // namespace tensor_ops::decode
