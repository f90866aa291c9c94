// expert_linear: products with the matrices of the experts that were chosen for each token. Those
// of a step that chose the same expert read it together.
#include "decode/executor/node.h"
#include "decode/kernels/stack_tiles.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// How many rows are multiplied at a time, and how many tiles are multiplied together then.
constexpr std::size_t kPieceRows = 192, kPieceTiles = kMostSums / kTileRows / kPieceRows;

// A pair is a token and one of the experts that were chosen for it: pair p of token p / chosen.
// Pairs with the same expert are together in the order of their experts, and so are the rows that
// are prepared for them.
struct ExpertScratch {
  // For each thread: a row before it is prepared; a few prepared rows; results of tiles before they
  // are put in place, and the sums of multiply_tiles(); two tiles whose place in memory is not
  // filled yet; which experts were chosen, the first of each one's pairs, and the pairs in order.
  decode::Piece<float> row;
  decode::Piece<unsigned char> few_prepared;
  decode::Piece<float> results, sums;
  decode::Piece<unsigned char> tiles;
  decode::Piece<std::int32_t> experts, firsts, pairs, places;
  // For all threads: the prepared rows of a step with many rows.
  decode::Piece<unsigned char> prepared;
  decode::Scratch size;

  explicit TENSOR_OPS_INLINE ExpertScratch(const decode::Share& share) {
    const auto of = share.attributes_as<decode::ExpertLinearNode::Attributes>();
    const auto num_experts = static_cast<std::size_t>(of.num_experts);
    const std::size_t chosen = share.input_columns[1], num_pairs = share.rows * chosen;
    const std::size_t few = share.rows < decode::kFewRows ? share.rows : decode::kFewRows;
    const bool is_many = num_pairs >= kManyTokens;
    decode::Pieces own, shared;
    row = own.add<float>(share.product_columns, static_cast<std::size_t>(of.input_parts));
    few_prepared = own.add<unsigned char>(few, chosen, share.prepared_bytes);
    results = own.add<float>(is_many ? kMostSums : num_pairs * kTileRows);
    sums = own.add<float>(is_many ? kMostSums : 0);
    tiles = own.add<unsigned char>(2, share.tile_bytes);
    experts = own.add<std::int32_t>(num_experts + 1);  // the last one is their number
    firsts = own.add<std::int32_t>(num_experts + 1);
    pairs = own.add<std::int32_t>(num_pairs);
    places = own.add<std::int32_t>(num_pairs);
    prepared = shared.add<unsigned char>(num_pairs, share.prepared_bytes);
    size = {own.bytes(), shared.bytes()};
  }
};

decode::Scratch scratch_of_experts(const decode::Share& share) { return ExpertScratch(share).size; }

class ExpertStep {
 public:
  explicit ExpertStep(const decode::Share& share)
      : share_(share),
        scratch_(share),
        of_(share.attributes_as<decode::ExpertLinearNode::Attributes>()),
        chosen_(share.input_columns[1]),
        num_pairs_(share.rows * chosen_),
        // One token has one row, if all of its experts read that.
        num_rows_(share.rows == 1 && of_.input_parts == 1 ? 1 : num_pairs_),
        experts_(scratch_.experts.in(share.own)),
        firsts_(scratch_.firsts.in(share.own)),
        pairs_(scratch_.pairs.in(share.own)),
        places_(scratch_.places.in(share.own)),
        prepared_(share.rows <= decode::kFewRows ? scratch_.few_prepared.in(share.own)
                                                 : scratch_.prepared.in(share.shared)) {}

  // Every thread finds out by itself which pairs have which expert, then prepares its rows.
  void prepare() {
    sort_pairs();
    if (share_.num_runs > 0)
      prefetch_start(share_.runs[static_cast<std::size_t>(experts_[0]) * share_.num_runs]);
    const bool is_few = share_.rows <= decode::kFewRows;
    const std::size_t end = is_few ? share_.rows : share_.end_of(share_.rows);
    for (std::size_t r = is_few ? 0 : share_.begin_of(share_.rows); r < end; ++r) prepare_row(r);
  }

  // The tiles are those of the chosen experts.
  void multiply() {
    multiply_stack(
        share_, num_experts(), rows_of_expert() >= kManyTokens ? 2 : 1,
        [this](std::size_t index) { return static_cast<std::size_t>(experts_[index]); },
        [this](std::size_t index, const decode::TileRun& run, std::size_t tile, std::size_t end) {
          return multiply_tiles(run, index, tile, end);
        });
  }

 private:
  void sort_pairs() {
    const auto* const chosen = static_cast<const std::int32_t*>(share_.input[1]);
    const auto all = static_cast<std::size_t>(of_.num_experts);
    std::int32_t* const counts = firsts_ + 1;
    __builtin_memset(firsts_, 0, (all + 1) * sizeof(std::int32_t));
    for (std::size_t p = 0; p < num_pairs_; ++p) ++counts[chosen[p]];
    for (std::size_t e = 0; e < all; ++e) counts[e] += firsts_[e];
    // The place of a pair is the first of its expert's that is free.
    for (std::size_t p = 0; p < num_pairs_; ++p) {
      places_[p] = firsts_[chosen[p]]++;
      pairs_[places_[p]] = static_cast<std::int32_t>(p);
    }
    // Now each number is that of the next expert; those that nobody chose are left out.
    std::int32_t before = 0;
    std::size_t count = 0;
    for (std::size_t e = 0; e < all; ++e) {
      const std::int32_t end = firsts_[e];
      if (end == before) continue;
      experts_[count] = static_cast<std::int32_t>(e);
      firsts_[count++] = before;
      before = end;
    }
    firsts_[count] = before;
    experts_[all] = static_cast<std::int32_t>(count);
  }
  std::size_t num_experts() const { return static_cast<std::size_t>(experts_[of_.num_experts]); }
  // As many as an expert has on average.
  std::size_t rows_of_expert() const { return (num_pairs_ - 1) / num_experts() + 1; }
  // The rows that are multiplied together, a piece of those of an expert, by number in firsts_.
  struct Piece {
    std::size_t first, rows;
  };
  Piece piece_of(std::size_t expert, std::size_t place) const {
    const auto first = static_cast<std::size_t>(firsts_[expert]);
    const auto behind = static_cast<std::size_t>(firsts_[expert + 1]);
    const std::size_t most = num_rows_ > 1 ? kPieceRows : 1;
    const std::size_t begin = first + (place - first) / most * most;
    return {begin, behind - begin < most ? behind - begin : most};
  }
  std::size_t expert_of(std::size_t place) const {
    std::size_t low = 0, behind = num_experts();
    while (behind - low > 1) {
      const std::size_t middle = (low + behind) / 2;
      (static_cast<std::size_t>(firsts_[middle]) <= place ? low : behind) = middle;
    }
    return low;
  }
  // The prepared rows of a piece, with what a kind has before them of each row and its own bytes.
  unsigned char* prepared_at(std::size_t offset, std::size_t bytes, std::size_t place) const {
    return prepared_ + num_rows_ * offset + (num_rows_ > 1 ? place * bytes : 0);
  }

  void prepare_row(std::size_t r) {
    const float* row = share_.in(0) + r * share_.input_columns[0];
    if (share_.before) {
      float* const made = scratch_.row.in(share_.own);
      share_.row_before(*share_.before, r, made);
      row = made;
    }
    const auto parts = static_cast<std::size_t>(of_.input_parts);
    for (std::size_t part = 0; part < parts; ++part) {
      const std::int32_t* const places = places_ + r * chosen_ + part * (chosen_ / parts);
      for (std::size_t k = 0; k < share_.num_prepared; ++k)
        prepare_kind(share_.prepared[k], row + part * share_.product_columns, places,
                     num_rows_ > 1 ? chosen_ / parts : 1);
    }
  }
  // Prepares a row for some of its experts, where their rows are.
  void prepare_kind(const decode::PreparedKind& kind, const float* x, const std::int32_t* places,
                    std::size_t count) const {
    const ProductKernel& kernel = kind.kernel->for_tokens(rows_of_expert());
    for (std::size_t i = 0; i < count; ++i) {
      const auto place = static_cast<std::size_t>(places[i]);
      if (kernel.prepares_in_rows && i > 0) {
        const auto first = static_cast<std::size_t>(places[0]);
        __builtin_memcpy(prepared_at(kind.offset, kind.bytes, place),
                         prepared_at(kind.offset, kind.bytes, first), kind.bytes);
        continue;
      }
      const Piece piece = piece_of(expert_of(place), place);
      kernel.prepare(x, share_.product_columns, prepared_at(kind.offset, kind.bytes, piece.first),
                     kind.bytes, place - piece.first, piece.rows);
    }
  }

  // Returns how many tiles from `tile` on it multiplied.
  std::size_t multiply_tiles(const decode::TileRun& run, std::size_t index, std::size_t tile,
                             std::size_t end) {
    const auto first = static_cast<std::size_t>(firsts_[index]);
    const auto behind = static_cast<std::size_t>(firsts_[index + 1]);
    const ProductKernel& kernel = run.kernel->for_tokens(rows_of_expert());
    std::size_t count = 1;
    if (num_pairs_ >= kManyTokens && kernel.multiplies_tiles(behind - first) && tile + 1 < end) {
      count = tiles_together(run, tile, end);
      if (count > kPieceTiles) count = kPieceTiles;
    }
    const unsigned char* const tiles =
        packed_tiles(run, tile, count, share_.product_columns, scratch_.tiles.in(share_.own));
    float* const results = scratch_.results.in(share_.own);
    const std::size_t stride = count * kTileRows;
    for (std::size_t p = first, rows; p < behind; p += rows) {
      rows = piece_of(index, p).rows;
      const unsigned char* const prepared = prepared_at(run.prepared_offset, run.prepared_bytes, p);
      if (count > 1)
        kernel.multiply_tiles(tiles, run.tile_bytes, count, share_.product_columns, prepared,
                              run.prepared_bytes, rows, scratch_.sums.in(share_.own), results,
                              stride);
      else
        kernel.multiply(tiles, share_.product_columns, prepared, run.prepared_bytes, rows, results,
                        stride);
      const std::size_t row = run.first + tile * kTileRows;
      const std::size_t left = run.rows - tile * kTileRows;
      for (std::size_t i = 0; i < rows; ++i)
        put(results + i * stride, pairs_[p + i], experts_[index], row,
            left < stride ? left : stride);
    }
    return count;
  }

  // Writes rows of what an expert gives to where they belong, with biases and the residual.
  void put(const float* products, std::int32_t pair, std::int32_t expert, std::size_t row,
           std::size_t count) const {
    const std::size_t p = static_cast<std::size_t>(pair), token = p / chosen_, k = p % chosen_;
    const std::size_t all_rows = share_.columns / chosen_;
    const std::size_t of_part = all_rows / static_cast<std::size_t>(of_.output_parts);
    const float* bias = share_.parameters[decode::ExpertLinearNode::kBias];
    if (bias) bias += static_cast<std::size_t>(expert) * all_rows;
    for (std::size_t i = 0; i < count;) {
      const std::size_t at = row + i, inside = at % of_part;
      const std::size_t left = of_part - inside, here = left < count - i ? left : count - i;
      const std::size_t column = (at / of_part * chosen_ + k) * of_part + inside;
      float* const out = share_.out() + token * share_.columns + column;
      for (std::size_t l = 0; l < here; ++l) {
        float value = products[i + l];
        if (bias) value += bias[at + l];
        if (share_.residual) value += share_.residual[token * share_.columns + column + l];
        out[l] = value;
      }
      i += here;
    }
  }

  const decode::Share& share_;
  const ExpertScratch scratch_;
  const decode::ExpertLinearNode::Attributes of_;
  const std::size_t chosen_, num_pairs_, num_rows_;
  std::int32_t *const experts_, *const firsts_, *const pairs_, *const places_;
  unsigned char* const prepared_;
};

void prepare_experts(const decode::Share& share) { ExpertStep(share).prepare(); }
void multiply_experts(const decode::Share& share) { ExpertStep(share).multiply(); }

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(expert_linear, prepare_experts, multiply_experts, false, scratch_of_experts)
