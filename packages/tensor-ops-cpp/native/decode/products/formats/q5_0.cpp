// q5_0: 32 columns share a half-precision scale d; a weight is d (q - 16) with q from 0 to 31.
#include "decode/products/simple_blocks.h"

SIMPLE_BLOCK_FORMAT(q5_0, 5, false)
