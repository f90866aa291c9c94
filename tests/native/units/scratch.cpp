// The pieces of nodes' scratch: none overlaps another, and each has room for what is written to it.
#include <initializer_list>
#include <random>

#include "decode/executor/product_scratch.h"
#include "decode/kernels/attention_scratch.h"
#include "require.h"

namespace {

using namespace tensor_ops::decode;
using tensor_ops::kMostSums;
using tensor_ops::kTileRows;

// Goes through pieces in the order in which they lie.
class Walk {
 public:
  template <class T>
  void pass(const char* name, const Piece<T>& piece) {
    require(piece.offset >= end_, name, " begins at ", piece.offset, ", where memory up to ", end_,
            " has another use");
    require(piece.offset % 64 == 0, name, " is not aligned");
    end_ = piece.offset + piece.count * sizeof(T);
  }
  void finish(const char* name, std::size_t bytes) const {
    require(end_ <= bytes && bytes < end_ + 64, name, " has ", bytes, " bytes, of ", end_);
  }

 private:
  std::size_t end_ = 0;
};

void check_pieces() {
  std::mt19937 random(1);
  for (int round = 0; round < 1000; ++round) {
    Pieces pieces;
    Walk walk;
    for (unsigned count = random() % 8; count > 0; --count) {
      walk.pass("a piece of bytes", pieces.add<unsigned char>(random() % 300));
      walk.pass("a piece of floats", pieces.add<float>(random() % 40, random() % 10));
    }
    walk.finish("scratch", pieces.bytes());
  }
}

void check_too_large() {
  constexpr std::size_t kHalf = ~std::size_t{0} / 2 + 1;
  for (std::size_t count : {kHalf, ~std::size_t{0}, ~std::size_t{0} - 3}) {
    Pieces pieces;
    pieces.add<char>(count);
    require(pieces.bytes() == Pieces::kTooLarge, count, " bytes are not too many");
    pieces.add<float>(16);
    require(pieces.bytes() == Pieces::kTooLarge, "a piece more makes the size small again");
  }
  Pieces pieces;
  pieces.add<float>(kHalf / 2, 2);
  require(pieces.bytes() == Pieces::kTooLarge, "a product overflows");
  Pieces sum;
  for (int i = 0; i < 64; ++i) sum.add<char>(kHalf / 4);
  require(sum.bytes() == Pieces::kTooLarge, "a sum overflows");
}

void check_attention(CacheType type, std::size_t page, std::size_t group, std::size_t head) {
  const AttentionScratch own(type, page, group, head);
  const PartialLayout partial(group, head);
  Walk walk;
  walk.pass("assembled[0]", own.assembled[0]);
  walk.pass("assembled[1]", own.assembled[1]);
  walk.pass("heads", own.heads);
  walk.pass("largest", own.largest);
  walk.pass("sums", own.sums);
  walk.pass("partial", own.partial);
  walk.pass("int8_heads", own.int8_heads);
  walk.pass("query", own.query);
  walk.pass("together", own.together);
  walk.finish("attention's scratch", own.bytes);

  const auto has_room = [&](const char* name, std::size_t count, std::size_t wanted) {
    require(count >= wanted, name, " has room for ", count, " elements, not ", wanted, ": group ",
            group, ", head ", head, ", page ", page);
  };
  if (page % kCacheBlock)
    for (const auto& blocks : own.assembled)
      has_room("assembled", blocks.count, kMostBlocks * block_bytes(type, head));
  has_room("heads", own.heads.count, group * head);
  if (type != CacheType::kInt8) {
    const TogetherLayout of(head);
    const std::size_t elements = of.slices * kCacheBlock;
    has_room("together's keys", of.values - of.keys, kAttendedRange * head);
    has_room("together's values", of.queries - of.values, kAttendedRange * elements);
    has_room("together's queries", of.scores - of.queries, kMostTogether * head);
    has_room("together's scores", of.results - of.scores, kMostTogether * kAttendedRange);
    has_room("together's results", of.largest - of.results, kMostTogether * elements);
    has_room("together's maximums", of.sums - of.largest, kMostTogether);
    has_room("together's sums", of.all_largest - of.sums, kMostTogether);
    has_room("all maximums", of.all_sums - of.all_largest, kMostTogether);
    has_room("all sums", of.floats - of.all_sums, kMostTogether);
    has_room("together", own.together.count, of.floats);
  }
  has_room("largest", own.largest.count, group);
  has_room("sums", own.sums.count, group);
  has_room("partial's values", partial.largest, group * head);
  has_room("partial's maximums", partial.sums - partial.largest, group);
  has_room("partial's sums", partial.floats - partial.sums, group);
  has_room("partial", own.partial.count, partial.floats);
  for (std::size_t heads = 1; heads <= kMostQueryHeads; ++heads)
    for (std::size_t stride = kCacheBlock; stride <= kAttendedRange; stride += kCacheBlock) {
      has_room("query", own.query.count, heads * stride);
      if (type != CacheType::kInt8) continue;
      const Int8QueryLayout rows(heads, stride, head);
      const std::size_t scales = scales_of(head), words = (rows.floats - rows.weights) * 2;
      has_room("query's scores", rows.scaled, heads * stride);
      has_room("query's scaled scores", rows.steps - rows.scaled, heads * stride);
      has_room("query's steps", rows.weights - rows.steps, scales * heads);
      has_room("query's weights", words, scales * heads * stride);
      has_room("query", own.query.count, rows.floats);
    }
  if (type != CacheType::kInt8) return;
  const Int8HeadLayout int8(head);
  has_room("a head's elements", int8.steps * 2, head + head % 2);
  has_room("a head's steps", int8.floats - int8.steps, scales_of(head));
  has_room("int8_heads", own.int8_heads.count, group * int8.floats);
}

void check_shared_attention(std::size_t positions, std::size_t kv_heads, std::size_t head) {
  const PartialLayout partial(3, head);
  const SharedAttentionScratch shared(positions, kv_heads, partial);
  Walk walk;
  walk.pass("done", shared.done);
  walk.pass("parts", shared.parts);
  walk.finish("attention's shared scratch", shared.bytes);
  require(shared.done.count >= kMostShared, "done has no room for all pairs");
  require(shared.most_parts * kAttendedRange >= positions * kv_heads, "ranges are left out");
  require(shared.parts.count >= shared.most_parts * partial.floats, "parts has too little room");
}

// The kernels know the rows of a step, the plan those of the largest one.
void check_products(std::size_t columns, std::size_t prepared_bytes, std::size_t tile_bytes,
                    std::size_t most) {
  const ProductScratch planned(columns, prepared_bytes, tile_bytes, most);
  for (std::size_t rows = 1; rows <= most; ++rows) {
    const ProductScratch used(columns, prepared_bytes, tile_bytes, rows);
    Walk own, shared;
    own.pass("row", used.row);
    own.pass("few_prepared", used.few_prepared);
    own.pass("results", used.results);
    own.pass("tiles", used.tiles);
    own.finish("products' scratch", used.size.own);
    shared.pass("prepared", used.prepared);
    shared.finish("products' shared scratch", used.size.shared);
    require(used.size.own <= planned.size.own && used.size.shared <= planned.size.shared,
            "a step of ", rows, " rows wants more than one of ", most);
    require(used.few_prepared.offset == planned.few_prepared.offset, "few_prepared moves");
    require(used.row.count >= columns, "row has too little room");
    require(used.few_prepared.count >= kFewRows * prepared_bytes, "few_prepared has too little");
    require(used.results.count >= rows * kTileRows, "results has too little room");
    require(used.results.count >= kMostSums, "results has too little room for sums");
    require(used.prepared.count >= rows * prepared_bytes, "prepared has too little room");
    require(used.tiles.count >= 2 * tile_bytes, "tiles has too little room");
  }
}

}  // namespace

int main() {
  check_pieces();
  check_too_large();
  for (CacheType type : {CacheType::kFloat32, CacheType::kFloat16, CacheType::kInt8})
    for (std::size_t page : {1, 7, 16, 24, 120, 128})
      for (std::size_t group = 1; group <= 9; ++group)
        for (std::size_t head = 1; head <= 140; ++head) check_attention(type, page, group, head);
  for (std::size_t positions : {1, 127, 128, 129, 5000})
    for (std::size_t kv_heads = 1; kv_heads <= 9; ++kv_heads)
      for (std::size_t head : {1, 5, 64}) check_shared_attention(positions, kv_heads, head);
  for (std::size_t columns : {1, 31, 32, 576})
    for (std::size_t prepared_bytes : {64, 192, 1024})
      for (std::size_t tile_bytes : {64, 5760})
        check_products(columns, prepared_bytes, tile_bytes, 40);
}
