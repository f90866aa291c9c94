// The scratch of a node that ends in products with packed matrices.
#pragma once

#include "decode/executor/share.h"

namespace tensor_ops::decode {

// The scratch of a product with `rows` rows of activations, by the columns of a row and by its
// bytes once it is prepared.
struct ProductScratch {
  // Of a thread: a row before it is prepared, few rows that are prepared, and the results of a tile
  // that is not whole.
  Piece<float> row;
  Piece<unsigned char> few_prepared;
  Piece<float> results;
  // Of all threads: rows that are prepared.
  Piece<unsigned char> prepared;
  Scratch size;

  DECODE_INLINE ProductScratch(std::size_t columns, std::size_t prepared_bytes, std::size_t rows) {
    Pieces own, shared;
    row = own.add<float>(columns);
    few_prepared = own.add<unsigned char>(kFewRows, prepared_bytes);
    results = own.add<float>(rows, kTileRows);
    prepared = shared.add<unsigned char>(rows, prepared_bytes);
    size = {own.bytes(), shared.bytes()};
  }
};

}  // namespace tensor_ops::decode
