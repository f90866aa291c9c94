// Products of tiles of codes of 4 bits whose scales are a unit times an integer of 32 columns.
#include "decode/products/code_blocks.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {

EXPORT_TILE_PRODUCTS(codes_4, CodeSuperBlock<4>)

}  // namespace tensor_ops::TENSOR_OPS_LEVEL
