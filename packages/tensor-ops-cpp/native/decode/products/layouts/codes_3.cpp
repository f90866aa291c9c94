// Products of tiles of codes of 3 bits whose scales are a unit times an integer of 16 columns.
#include "decode/products/code_blocks.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {

EXPORT_TILE_PRODUCTS(codes_3, CodeSuperBlock<3>)

}  // namespace tensor_ops::TENSOR_OPS_LEVEL
