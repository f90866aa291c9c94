// The work of one thread for one node in one step: plain pointers and sizes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "decode/executor/tile_claims.h"
#include "decode/products/product.h"
#include "decode/program/node_slots.h"
#include "decode/program/pieces.h"
#include "decode/program/step.h"
#include "decode/program/tensor_type.h"
#include "decode/ranks/exchange_buffers.h"

namespace tensor_ops::decode {

// The scratch that each thread has of its own, and the scratch that all threads share.
struct Scratch {
  std::size_t own = 0, shared = 0;  // bytes
};

constexpr std::size_t kCacheBlock = 16, kScaledElements = 32;
// A query attends to ranges of positions, each from one multiple of kAttendedRange up to the next,
// one by one. A range has at most kMostBlocks blocks.
constexpr std::size_t kAttendedRange = 128, kMostBlocks = kAttendedRange / kCacheBlock;

DECODE_INLINE constexpr std::size_t scales_of(std::size_t head_size) {
  return (head_size + kScaledElements - 1) / kScaledElements;
}

// Bytes of the key and the value of one position and one head.
DECODE_INLINE constexpr std::size_t position_bytes(CacheType type, std::size_t key_size,
                                                   std::size_t value_size) {
  constexpr std::size_t kScale = 2;
  if (type == CacheType::kInt8)
    return key_size + key_size % 2 + value_size +
           (scales_of(key_size) + scales_of(value_size)) * kScale;
  return (key_size + value_size) * (type == CacheType::kFloat16 ? 2 : 4);
}
// The positions that a page has memory for.
DECODE_INLINE constexpr std::size_t kept_positions(CacheType type, std::size_t page_size) {
  if (type != CacheType::kInt8) return page_size;
  return (page_size + kCacheBlock - 1) / kCacheBlock * kCacheBlock;
}

constexpr std::size_t kPiecePositions = 512;

// The keys and values that one attention node writes, or the states of a node, each a page with one
// head. The memory of all paged caches, and of those that are not, is divided into pieces of
// kPiecePositions positions in whole pages, or of one page that has more; the last piece may have
// fewer. That of states is divided by their numbers, so that those of all nodes lie together.
// A piece has the pages of every cache, head by head: what few tokens use lies close together, so
// that little memory becomes resident for them, and a head's pages with consecutive numbers are
// still long streams. A page is block[page_size/16]. A block has 16 positions of a head of size d:
//
//     floats  keys[d][16], values[16][d]
//     int8    keys[d/2][16][2], values[8][d][2], key_scales[d/32][16], value_scales[d/32][16]
//
// Quotients are rounded up. The last block of floats of a page may have fewer positions than 16.
// Where none has, so that page_size is a multiple of 16, the blocks of floats of a head's pages
// with consecutive numbers are divided into groups of kMostBlocks; the last one may have fewer. A
// group has the keys of all of its blocks, then their values. A range of positions whose pages are
// a group is thus read in the order of memory, keys first. In int8, keys[i][p][k] is element 2i + k
// of position p, with a zero behind an odd last element; values[j][i][k] is element i of position
// 2j + k; and scales[g][p], in float16, belong to elements 32g to 32g + 31 of position p.
struct CacheMemory {
  unsigned char* data;  // of all caches that are paged, of all that are not, or of all states
  CacheType type;
  bool is_paged;    // a slot that is not paged has the page of its own number
  bool has_groups;  // whether keys and values of blocks lie in groups
  std::size_t num_pages, page_size, head_size;
  std::uint32_t pages_of_piece;
  // In one page: the bytes of a head, of the caches that come before this one in a piece, and of
  // all caches there.
  std::size_t page_bytes, bytes_before, bytes_of_all;

  // The pages of a piece that one head has, one behind the other.
  struct Stretch {
    std::size_t first, pages;  // the number of the first page, and how many there are
    unsigned char* data;

    DECODE_INLINE bool has(std::size_t number) const { return number - first < pages; }
  };
  DECODE_INLINE Stretch stretch(std::size_t number, std::size_t head) const {
    const std::size_t piece = static_cast<std::uint32_t>(number) / pages_of_piece;
    const std::size_t first = piece * pages_of_piece, left = num_pages - first;
    const std::size_t pages = left < pages_of_piece ? left : pages_of_piece;
    return {first, pages, data + first * bytes_of_all + pages * (bytes_before + head * page_bytes)};
  }
  // A page that has no groups.
  DECODE_INLINE unsigned char* page(const Stretch& all, std::size_t number) const {
    return all.data + (number - all.first) * page_bytes;
  }
  DECODE_INLINE unsigned char* page(std::size_t number, std::size_t head) const {
    return page(stretch(number, head), number);
  }

  // The keys and the values of a block. In int8 what the block has besides follows the values.
  struct Block {
    unsigned char *keys, *values;
  };
  // The block of 16 positions that begins at a place of a page, which has groups.
  DECODE_INLINE Block block(const Stretch& all, std::size_t number, std::size_t place) const {
    const std::size_t blocks = page_size / kCacheBlock;  // of a page
    const std::size_t at = (number - all.first) * blocks + place / kCacheBlock;
    const std::size_t in_group = at % kMostBlocks, left = all.pages * blocks - (at - in_group);
    const std::size_t of_group = left < kMostBlocks ? left : kMostBlocks;
    const std::size_t half = half_bytes();
    unsigned char* const group = all.data + (at - in_group) * 2 * half;
    return {group + in_group * half, group + (of_group + in_group) * half};
  }
  // The bytes of the keys of a block of floats, and those of its values.
  DECODE_INLINE std::size_t half_bytes() const {
    return kCacheBlock * position_bytes(type, head_size, head_size) / 2;
  }
  // visit(first byte, bytes) of all parts of a page, block by block.
  template <class Visit>
  void for_parts_of_page(std::size_t number, std::size_t head, Visit visit) const {
    if (!has_groups) return visit(page(number, head), page_bytes);
    const Stretch all = stretch(number, head);
    for (std::size_t place = 0; place < page_size; place += kCacheBlock) {
      const Block each = block(all, number, place);
      visit(each.keys, half_bytes());
      visit(each.values, half_bytes());
    }
  }
};

// The tiles of one matrix that one thread multiplies. Their rows begin at a column of the output.
struct TileRun {
  const ProductKernel* kernel;
  // Of this kind of activations: what comes before it of each prepared token, and its own bytes.
  std::size_t prepared_offset, prepared_bytes;
  std::size_t tile_bytes;
  unsigned char* tiles;
  std::size_t first, rows;  // columns of the output; of a stack, of what one expert gives

  // While a matrix is not packed as a whole: its first tiles are, and those behind are packed into
  // scratch whenever they are multiplied.
  std::size_t num_packed;
  PackTile pack;
  const unsigned char* source;  // of the first row, as the caller's memory has it; null: packed
  std::size_t source_row_bytes;
  bool is_mapped_file;  // the source

  DECODE_INLINE void pack_tile(std::size_t tile, std::size_t columns, unsigned char* to) const {
    if (is_mapped_file) fault_in_tile(tile + 1);
    pack(rows_at(tile), rows_of(tile), columns, to);
  }

 private:
  // The bytes that Linux maps at a fault of a file that is in memory.
  static constexpr std::size_t kMapped = std::size_t{64} << 10;

  DECODE_INLINE std::size_t rows_of(std::size_t tile) const {
    const std::size_t left = rows - tile * kTileRows;
    return left < kTileRows ? left : kTileRows;
  }
  DECODE_INLINE const unsigned char* rows_at(std::size_t tile) const {
    return source + tile * kTileRows * source_row_bytes;
  }
  // Prefetching does nothing in pages that are not mapped.
  DECODE_INLINE void fault_in_tile(std::size_t tile) const {
    if (tile * kTileRows >= rows) return;
    const volatile unsigned char* const at = rows_at(tile);
    const std::size_t bytes = rows_of(tile) * source_row_bytes;
    for (std::size_t i = 0; i < bytes; i += kMapped) (void)at[i];
    if (bytes > 0) (void)at[bytes - 1];
  }
};

// One kind of activations that a node's products want; the sizes are those of TileRun. The memory
// has all tokens of one kind, then those of the next.
struct PreparedKind {
  const ProductKernel* kernel;
  std::size_t offset, bytes;
};

constexpr std::size_t kMostInputs = 3, kMostWeights = 7;

struct Share;
// Writes one row of what a node gives.
using RowKernel = void (*)(const Share&, std::size_t row, float* to);

struct alignas(64) Share {
  const Step* step;
  std::size_t rows;  // of the output
  bool is_selected;  // whether these are the selected tokens, else all
  std::size_t thread, threads;
  std::size_t num_own;  // shares that its worker has in this step, from this one on

  const void* input[kMostInputs];  // null where not given
  std::size_t input_columns[kMostInputs];
  void* output;
  void* second_output;                    // null where there is none
  std::size_t columns;                    // of the output
  const std::int64_t* attributes;         // the bits of each; see attributes_as()
  const float* parameters[kMostWeights];  // vectors and tables; null where not given
  std::size_t parameter_columns[kMostWeights];
  const unsigned char* table;  // rows that are looked up, as the caller's memory has them
  const WeightFormat* table_format;
  std::size_t table_row_bytes;
  CacheMemory cache;

  // Nodes that exchange values among ranks: the vectors of the exchange in which they take part.
  std::size_t num_ranks;
  ExchangeBuffers exchanged;

  // Products: the norm or gate whose rows they multiply instead of the input, null for none, and
  // the residual that is added to what they give, null for none.
  const Share* before;
  RowKernel row_before;
  const float* residual;
  // The columns of the matrices, the kinds of activations that they want, the bytes of a token
  // prepared in all these kinds, and this thread's tiles.
  std::size_t product_columns;
  const PreparedKind* prepared;
  std::size_t num_prepared, prepared_bytes;
  std::size_t tile_bytes;  // of the largest tile
  // Of stacks, the runs of each expert follow those of the one before, and the numbers are those of
  // one expert.
  const TileRun* runs;
  std::size_t num_runs, num_tiles;
  TileClaims* claims;       // by thread: which of its tiles are left
  const Share* of_threads;  // the shares of all threads

  unsigned char* own;     // scratch of this thread, aligned to 64 bytes
  unsigned char* shared;  // scratch of all threads

  // Inlined, so that no code of one level can be linked into another's.
  DECODE_INLINE const float* in(std::size_t k) const { return static_cast<const float*>(input[k]); }
  DECODE_INLINE float* out() const { return static_cast<float*>(output); }
  // The struct of the kind, such as AttentionNode::Attributes.
  template <class Attributes>
  DECODE_INLINE Attributes attributes_as() const {
    Attributes made;
    __builtin_memcpy(&made, attributes, sizeof(made));
    return made;
  }
  // The state with which a token begins, null where that is zeros, and the one that it leaves,
  // which may be the same.
  DECODE_INLINE const float* state_before(std::size_t token) const {
    return step->positions[token] == 0 ? nullptr : state(step->state_before[token], token);
  }
  DECODE_INLINE float* state_after(std::size_t token) const {
    return state(step->state_after[token], token);
  }
  // Where this thread's part of `count` equal pieces begins and ends.
  DECODE_INLINE std::size_t begin_of(std::size_t count) const { return count * thread / threads; }
  DECODE_INLINE std::size_t end_of(std::size_t count) const {
    return count * (thread + 1) / threads;
  }

 private:
  DECODE_INLINE float* state(std::int32_t number, std::size_t token) const {
    const std::int32_t of_slot = step->slots[token];
    return reinterpret_cast<float*>(
        cache.page(static_cast<std::size_t>(number < 0 ? of_slot : number), 0));
  }
};

// Up to this many rows each thread does the first phase of products by itself, which is cheaper
// than to wait for the others.
constexpr std::size_t kFewRows = 4;

using Kernel = void (*)(const Share&);

// A node's work on each thread. All threads meet between the phases, unless the second phase reads
// only what its own thread wrote in the first.
struct NodeKernels {
  Kernel first;
  Kernel second = nullptr;
  bool meets_if_few = true;
  // The scratch that it wants beside that of products, for a share without memory; null for none.
  Scratch (*scratch)(const Share&) = nullptr;
  // The kernel of a node that computes each row by itself, from one input, so that a product can do
  // that for it; else null.
  RowKernel row = nullptr;
};

}  // namespace tensor_ops::decode
