// The scratch of a node that ends in products with packed matrices.
#pragma once

#include "decode/executor/share.h"

namespace tensor_ops::decode {

// The scratch of a product with `rows` rows of activations of `columns` columns, each of which
// takes prepared_bytes when it is prepared; the largest tile has tile_bytes.
struct ProductScratch {
  // For each thread: a row before it is prepared; a few prepared rows; the results of a tile that
  // is not whole, or the sums of multiply_tiles(); two tiles whose place in memory is not filled
  // yet.
  Piece<float> row;
  Piece<unsigned char> few_prepared;
  Piece<float> results;
  Piece<unsigned char> tiles;
  // For all threads: the prepared rows of a step with many rows.
  Piece<unsigned char> prepared;
  Scratch size;

  DECODE_INLINE ProductScratch(std::size_t columns, std::size_t prepared_bytes,
                               std::size_t tile_bytes, std::size_t rows) {
    Pieces own, shared;
    row = own.add<float>(columns);
    few_prepared = own.add<unsigned char>(kFewRows, prepared_bytes);
    constexpr std::size_t most = kMostSums / kTileRows;
    results = own.add<float>(rows > most ? rows : most, kTileRows);
    tiles = own.add<unsigned char>(2, tile_bytes);
    prepared = shared.add<unsigned char>(rows, prepared_bytes);
    size = {own.bytes(), shared.bytes()};
  }
};

}  // namespace tensor_ops::decode
