// The most that the ranks which run the shards of a program together exchange, and the rule of such
// shards.
#pragma once

#include <cstddef>

#include "declaration/shared.h"
#include "decode/program/program.h"

namespace tensor_ops::decode {

// Whether a node puts columns side by side; else it adds up.
bool is_gather(const Node& node);

// The columns that each rank sends of a row of a node that exchanges values: equally many, though
// ranks may have one column less of what allgather puts side by side.
TENSOR_OPS_SHARED std::size_t sent_columns(const Program& program, const Node& node,
                                           std::size_t world_size);
// The most numbers that a rank sends at once, where values have at most so many rows; 0 where no
// node exchanges values.
TENSOR_OPS_SHARED std::size_t most_sent(const Program& program, std::size_t world_size,
                                        std::size_t most_rows = kAbsent);

// Throws ValueError unless every allgather has the columns of this rank.
TENSOR_OPS_SHARED void check_ranks(const Program& program, std::size_t rank,
                                   std::size_t world_size);

// The bytes that each rank takes, at most, for vectors of `count` numbers.
TENSOR_OPS_SHARED std::size_t exchange_bytes(std::size_t world_size, std::size_t count);

}  // namespace tensor_ops::decode
