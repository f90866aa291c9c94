#include "decode/ranks/exchange_sizes.h"

#include <algorithm>
#include <string>

#include "declaration/errors.h"
#include "decode/program/node_slots.h"
#include "decode/program/sizes.h"
#include "decode/ranks/callback_exchange.h"
#include "decode/ranks/window_exchange.h"

namespace tensor_ops::decode {

bool is_gather(const Node& node) { return std::string(node.kind->name) == "allgather"; }

std::size_t sent_columns(const Program& program, const Node& node, std::size_t world_size) {
  if (!is_gather(node)) return program.values[node.outputs[0]].columns;
  return (program.values[node.outputs[0]].columns + world_size - 1) / world_size;
}

std::size_t most_sent(const Program& program, std::size_t world_size, std::size_t most_rows) {
  std::size_t most = 0;
  for (const Node& node : program.nodes) {
    if (!node.kind->exchanges()) continue;
    const std::size_t rows =
        std::min(most_rows, program.limits.rows(program.values[node.outputs[0]].rows));
    most = std::max(most, size_product(node.where(), rows, sent_columns(program, node, world_size),
                                       sizeof(float)) /
                              sizeof(float));
  }
  return most;
}

void check_ranks(const Program& program, std::size_t rank, std::size_t world_size) {
  for (const Node& node : program.nodes) {
    if (!is_gather(node)) continue;
    const std::size_t columns = program.values[node.outputs[AllgatherNode::kOutput]].columns;
    const std::size_t expected = columns * (rank + 1) / world_size - columns * rank / world_size;
    const std::size_t given = program.values[node.inputs[AllgatherNode::kX]].columns;
    if (given != expected)
      throw ValueError(text("allgather '", node.name, "': x must have ", expected,
                            " columns on rank ", rank, " of ", world_size, ", got ", given));
  }
}

std::size_t exchange_bytes(std::size_t world_size, std::size_t count) {
  if (world_size == 1 || count == 0) return 0;
  return std::max(CallbackExchange::bytes(world_size, count),
                  WindowExchange::bytes(world_size, count) / world_size);
}

}  // namespace tensor_ops::decode
