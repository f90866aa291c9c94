// q8_0: 32 columns share a half-precision scale d; a weight is d q with q from -128 to 127. A tile
// has q + 128.
#include "decode/products/simple_blocks.h"

SIMPLE_BLOCK_FORMAT(q8_0, 8, false)
