// Nodes that run on the host between two launches: those that exchange values among ranks.
#pragma once

#include <memory>
#include <string>

#include "decode/executor/device_program.h"
#include "decode/executor/pinned_memory.h"
#include "decode/program/step.h"
#include "decode/ranks/exchange.h"

namespace tensor_ops::decode {

class CutNodes {
 public:
  // exchange: null for one rank. On the current device.
  CutNodes(const Program& program, const DeviceProgram& on_device,
           std::shared_ptr<Exchange> exchange, cudaStream_t stream);
  CutNodes(const CutNodes&) = delete;
  CutNodes& operator=(const CutNodes&) = delete;
  ~CutNodes();

  // Gives a step its number, and notes by what other ranks find that this one runs another step.
  void begin_step(Step& step);
  // Computes the first rows of a node's value. Throws what ends an exchange; nothing can be
  // exchanged after that.
  void run(const Cut& cut, std::size_t rows);
  // The least of a number that each rank has.
  std::size_t least_of_ranks(std::size_t number);
  // Why nothing can be exchanged any more; empty as long as it can.
  const std::string& failure() const { return failure_; }

 private:
  void meet(const ExchangeTag& tag);
  void add_up(const ExchangeBuffers& buffers, std::size_t count);
  void gather(const ExchangeBuffers& buffers, std::size_t value, std::size_t rows,
              std::size_t sent_columns);

  const Program& program_;
  const DeviceProgram& on_device_;
  const std::shared_ptr<Exchange> exchange_;
  const cudaStream_t stream_;
  std::unique_ptr<PinnedMemory> result_;  // of a node
  ExchangeTag step_{};
  std::string failure_;
};

}  // namespace tensor_ops::decode
