// tq1_0: a byte is a fraction of 256 whose first five digits to the base 3 are integers.
#include "decode/products/ternary.h"

namespace tensor_ops {
namespace {
namespace tq1_0 {
// How a file has a block.
struct Form : TernaryForm<54> {
  // Digit n of byte i of the first 32 is of column 32 n + i; of the next 16, of column
  // 160 + 16 n + i; the last 4 have four digits, of columns 240 + 4 n + i.
  template <class Block>
  static UNPACK_INLINE void unpack(const Block& block, std::size_t b, typename Block::Word* q) {
    for (std::size_t i = 0; i < kFours; ++i) {
      const std::size_t column = 32 * b + 4 * i;
      if (column < 160)
        q[i] = digits(block.word(column % 32), column / 32);
      else if (column < 240)
        q[i] = digits(block.word(32 + column % 16), (column - 160) / 16);
      else
        q[i] = digits(block.word(48), (column - 240) / 4);
    }
  }
  // Digit n of each byte: the whole part of 3 times what is left behind the digits before it.
  template <class Word>
  static UNPACK_INLINE Word digits(Word bytes, std::size_t n) {
    constexpr std::uint32_t powers[] = {1, 3, 9, 27, 81}, low = 0x00FF00FF;
    const Word even = (bytes & low) * powers[n] & low, odd = (bytes >> 8 & low) * powers[n] & low;
    return (even * 3u >> 8 & low) | (odd * 3u & ~low);
  }
};
}  // namespace tq1_0
}  // namespace
}  // namespace tensor_ops

TERNARY_FORMAT(tq1_0)
