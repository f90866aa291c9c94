// Nodes that run on the host between two launches: those that exchange values among ranks.
#pragma once

#include <memory>

#include "decode/executor/device_program.h"
#include "decode/executor/pinned_memory.h"
#include "decode/ranks/exchange.h"

namespace tensor_ops::decode {

class CutNodes {
 public:
  // exchange: null for one rank. On the current device.
  CutNodes(const Program& program, const DeviceProgram& on_device,
           std::shared_ptr<Exchange> exchange, cudaStream_t stream);

  // Computes the first rows of a node's value. Throws what ends an exchange.
  void run(const Cut& cut, std::size_t rows);

 private:
  void add_up(const ExchangeBuffers& buffers, std::size_t count);
  void gather(const ExchangeBuffers& buffers, std::size_t value, std::size_t rows,
              std::size_t sent_columns);

  const Program& program_;
  const DeviceProgram& on_device_;
  const std::shared_ptr<Exchange> exchange_;
  const cudaStream_t stream_;
  std::unique_ptr<PinnedMemory> result_;  // of a node
};

}  // namespace tensor_ops::decode
