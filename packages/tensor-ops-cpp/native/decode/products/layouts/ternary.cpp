// Products of tiles of integers of 2 bits, from which 1 is subtracted.
#include "decode/products/ternary.h"

#include "decode/products/blocks.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// Integers are multiplied by 8, and the scale divided, since kZero is a multiple of 8.
class Ternary : public TileBlock<TernaryForm<0>::Tile> {
 public:
  static constexpr int kLargest = 24, kZero = 8;
  static constexpr std::size_t kScales = 1;
  static constexpr bool kHasMinimum = false;
  TENSOR_OPS_INLINE Ternary(const unsigned char* tile, std::size_t block, std::size_t part)
      : TileBlock(tile, block, part), index_(block % Tile::kBlocks) {}
  TENSOR_OPS_INLINE void prefetch(Prefetching how = {}) const {
    prefetch_share<Tile>(halves_, index_, how);
  }
  TENSOR_OPS_INLINE Words word(std::size_t j) const { return high<2, 3>(0, j); }
  const Floats scale[kScales]{half(0) * 0.125f};

 private:
  using Tile = TernaryForm<0>::Tile;
  const std::size_t index_;
};

}  // namespace

EXPORT_TILE_PRODUCTS(ternary, Ternary)

}  // namespace tensor_ops::TENSOR_OPS_LEVEL
