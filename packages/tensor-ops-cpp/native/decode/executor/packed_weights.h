// The packed weights of a program: the tiles of its matrices.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "declaration/shared.h"
#include "decode/executor/memory.h"
#include "decode/products/product.h"
#include "decode/program/program.h"

namespace tensor_ops::decode {

// A piece of packed weights, and the owner of its memory: null where the caller owns it.
struct PackedPiece {
  const unsigned char* first;
  std::size_t bytes;
  std::shared_ptr<const void> owner;
};

// The tensors of the slot of matrices or stacks of a node; null where it has none.
const std::vector<std::size_t>* matrices_of(const Node& node);

// A matrix of a tensor, which may have several.
struct TensorPlane {
  std::size_t tensor, plane;
};
// The matrices of a node that are one below the other: all, or those of each expert.
std::vector<std::vector<TensorPlane>> matrix_groups(const Program& program, const Node& node);

// The first node that has the matrices of a node, which packs them for all that do.
std::size_t packing_node(const Program& program, std::size_t node);

// How the rows of a tensor are packed and multiplied here. Throws Error where they cannot be.
const WeightFormat& format_of(const Tensor& tensor);

inline std::size_t tiles_of(std::size_t rows) { return (rows + kTileRows - 1) / kTileRows; }

// Which tensors are read when a program is compiled. Matrices are not read if they are packed.
TENSOR_OPS_SHARED std::vector<bool> tensors_to_compile(const Program& program, bool is_packed);

// Says how the weights of a program are packed. Equal texts mean equal layouts.
TENSOR_OPS_SHARED std::string packed_layout(const Program& program);

class PackedTiles {
 public:
  // The tiles of some rows of a matrix, which one thread multiplies.
  struct Slice {
    std::size_t thread, rows, tile_bytes;
    unsigned char* tiles;

    std::size_t bytes() const { return tiles_of(rows) * tile_bytes; }
  };

  explicit PackedTiles(std::size_t threads) : thread_bytes_(threads) {}

  // Slices are added in the order of nodes, threads and rows.
  void add(const Slice& slice);
  const std::vector<Slice>& slices() const { return slices_; }
  std::size_t bytes() const;

  // Takes memory for each thread's slices, one behind the other, so that the thread reads one
  // sequential stream. Throws MemoryError.
  void allocate();
  // Uses the caller's memory instead, where all slices follow one another in the order in which
  // they were added. Throws ValueError where its size or alignment is wrong.
  void use(const TensorBytes& packed);
  // Reads every cache line of a thread's share of all bytes.
  void read(std::size_t thread) const;
  std::vector<PackedPiece> pieces() const;
  void clear();

 private:
  std::vector<Slice> slices_;
  std::vector<std::size_t> thread_bytes_;
  std::vector<std::shared_ptr<const Memory>> memory_;  // by thread; empty after use()
};

}  // namespace tensor_ops::decode
