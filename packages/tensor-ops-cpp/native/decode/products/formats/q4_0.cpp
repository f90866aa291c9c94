// q4_0: 32 columns share a half-precision scale d; a weight is d (q - 8) with q from 0 to 15.
#include "decode/products/simple_blocks.h"

SIMPLE_BLOCK_FORMAT(q4_0, 4, false)
