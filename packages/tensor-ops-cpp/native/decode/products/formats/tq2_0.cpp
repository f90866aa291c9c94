// tq2_0: integers of 2 bits.
#include "decode/products/ternary.h"

namespace tensor_ops {
namespace {
namespace tq2_0 {
// How a file has a block.
struct Form : TernaryForm<66> {
  template <class Block>
  static UNPACK_INLINE void unpack(const Block& block, std::size_t b, typename Block::Word* q) {
    unpack_two_bits(block, 0, b, q);
  }
};
}  // namespace tq2_0
}  // namespace
}  // namespace tensor_ops

TERNARY_FORMAT(tq2_0)
