// head_linear: products of the parts of each token's row with matrices, one for each head.
#include "decode/executor/node.h"
#include "decode/kernels/stack_tiles.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// The prepared parts of a head are one behind the other in the order of the tokens.
struct HeadScratch {
  // For each thread: a row before it is prepared; the prepared parts of few tokens; results before
  // they are put in place, and the sums of multiply_tiles(); two tiles whose place in memory is not
  // filled yet.
  decode::Piece<float> row;
  decode::Piece<unsigned char> few_prepared;
  decode::Piece<float> results;
  decode::Piece<unsigned char> tiles;
  decode::Piece<unsigned char> prepared;  // for all threads, of a step with many tokens
  decode::Scratch size;

  explicit TENSOR_OPS_INLINE HeadScratch(const decode::Share& share) {
    const auto of = share.attributes_as<decode::HeadLinearNode::Attributes>();
    const auto heads = static_cast<std::size_t>(of.num_heads);
    const std::size_t few = share.rows < decode::kFewRows ? share.rows : decode::kFewRows;
    decode::Pieces own, shared;
    row = own.add<float>(share.input_columns[0]);
    few_prepared = own.add<unsigned char>(few, heads, share.prepared_bytes);
    constexpr std::size_t most = kMostSums / kTileRows;
    results = own.add<float>(share.rows > most ? share.rows : most, kTileRows);
    tiles = own.add<unsigned char>(2, share.tile_bytes);
    prepared = shared.add<unsigned char>(share.rows, heads, share.prepared_bytes);
    size = {own.bytes(), shared.bytes()};
  }
};

decode::Scratch scratch_of_heads(const decode::Share& share) { return HeadScratch(share).size; }

class HeadProducts {
 public:
  explicit TENSOR_OPS_INLINE HeadProducts(const decode::Share& share)
      : share_(share),
        scratch_(share),
        heads_(static_cast<std::size_t>(
            share.attributes_as<decode::HeadLinearNode::Attributes>().num_heads)),
        is_few_(share.rows <= decode::kFewRows),
        prepared_(is_few_ ? scratch_.few_prepared.in(share.own)
                          : scratch_.prepared.in(share.shared)) {}

  void prepare() {
    const std::size_t end = is_few_ ? share_.rows : share_.end_of(share_.rows);
    const std::size_t stride = share_.input_columns[0] / heads_;
    for (std::size_t r = is_few_ ? 0 : share_.begin_of(share_.rows); r < end; ++r) {
      const float* row = share_.in(0) + r * share_.input_columns[0];
      if (share_.before) {
        float* const made = scratch_.row.in(share_.own);
        share_.row_before(*share_.before, r, made);
        row = made;
      }
      for (std::size_t h = 0; h < heads_; ++h)
        prepare_token(share_, row + h * stride, part(h), r, share_.rows);
    }
  }

  void multiply() {
    multiply_stack(
        share_, heads_, share_.rows >= kManyTokens ? 2 : 1, [](std::size_t head) { return head; },
        [this](std::size_t head, const decode::TileRun& run, std::size_t tile, std::size_t end) {
          return multiply_tiles(run, head, tile, end);
        });
  }

 private:
  TENSOR_OPS_INLINE unsigned char* part(std::size_t head) const {
    return prepared_ + head * share_.rows * share_.prepared_bytes;
  }

  // Returns how many tiles from `tile` on it multiplied.
  std::size_t multiply_tiles(const decode::TileRun& run, std::size_t head, std::size_t tile,
                             std::size_t end) const {
    const ProductKernel& kernel = run.kernel->for_tokens(share_.rows);
    const std::size_t left = run.rows - tile * kTileRows, whole = tile + left / kTileRows;
    std::size_t count = 1;
    if (kernel.multiplies_tiles(share_.rows) && tile + 1 < end && tile + 1 < whole)
      count = tiles_together(run, tile, end < whole ? end : whole);
    const unsigned char* const tiles =
        packed_tiles(run, tile, count, share_.product_columns, scratch_.tiles.in(share_.own));
    const unsigned char* const rows = part(head) + share_.rows * run.prepared_offset;
    float* const out =
        share_.out() + head * (share_.columns / heads_) + run.first + tile * kTileRows;
    float* const results = scratch_.results.in(share_.own);
    if (count > 1) {
      kernel.multiply_tiles(tiles, run.tile_bytes, count, share_.product_columns, rows,
                            run.prepared_bytes, share_.rows, results, out, share_.columns);
      add_residual(out, count * kTileRows);
    } else if (left >= kTileRows) {
      kernel.multiply(tiles, share_.product_columns, rows, run.prepared_bytes, share_.rows, out,
                      share_.columns);
      add_residual(out, kTileRows);
    } else {
      kernel.multiply(tiles, share_.product_columns, rows, run.prepared_bytes, share_.rows, results,
                      kTileRows);
      for (std::size_t r = 0; r < share_.rows; ++r)
        __builtin_memcpy(out + r * share_.columns, results + r * kTileRows, left * sizeof(float));
      add_residual(out, left);
    }
    return count;
  }

  void add_residual(float* out, std::size_t lanes) const {
    if (!share_.residual) return;
    const float* const residual = share_.residual + (out - share_.out());
    for (std::size_t r = 0; r < share_.rows; ++r)
      for (std::size_t l = 0; l < lanes; ++l)
        out[r * share_.columns + l] += residual[r * share_.columns + l];
  }

  const decode::Share& share_;
  const HeadScratch scratch_;
  const std::size_t heads_;
  const bool is_few_;
  unsigned char* const prepared_;
};

void prepare_heads_of_products(const decode::Share& share) { HeadProducts(share).prepare(); }
void multiply_heads(const decode::Share& share) { HeadProducts(share).multiply(); }

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(head_linear, prepare_heads_of_products, multiply_heads, false, scratch_of_heads)
