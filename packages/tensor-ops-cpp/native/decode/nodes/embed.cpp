// embed: the rows of a table that the tokens name.
#include "decode/executor/node.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

void run_embed(const decode::Share& share) {
  const auto* const tokens = static_cast<const std::int32_t*>(share.input[0]);
  const std::size_t end = share.end_of(share.rows);
  for (std::size_t r = share.begin_of(share.rows); r < end; ++r)
    share.table_format->dequantize(
        share.table + static_cast<std::size_t>(tokens[r]) * share.table_row_bytes, share.columns,
        share.out() + r * share.columns);
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(embed, run_embed)
