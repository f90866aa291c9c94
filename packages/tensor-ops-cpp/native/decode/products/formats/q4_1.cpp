// q4_1: 32 columns share a scale d and a minimum m, both half-precision; a weight is d q + m with q
// from 0 to 15.
#include "decode/products/simple_blocks.h"

SIMPLE_BLOCK_FORMAT(q4_1, 4, true)
