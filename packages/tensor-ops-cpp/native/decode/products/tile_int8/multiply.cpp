// Products of integer weights on the tile registers of AMX, for four tokens or more. The integers
// are exact, and blocks end as elsewhere (BlockEnd), so that the results have the same bits as
// those of the other variants.
//
// A tile product takes 16 cycles and so does the store of its sums, at the same time if neither
// waits for the other. An instruction that waits keeps its place in the scheduler, so that each
// stage of a sum is some steps behind the one before: a register is stored just before it is used
// again, four products later, and the sums are read a step after that.
//
// Near tile instructions the second port does not multiply (measured on Emerald Rapids): what ends
// the blocks is limited by multiplications, fused additions and conversions on the first port. So
// sums are joined by a shuffle and additions where they can be.
#include "decode/products/tile_int8/block.h"
#include "decode/products/tile_unit.h"
#include "decode/products/unpacked/next_blocks.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

constexpr std::size_t kTileInputs = 16;  // rows of activations, each a term of a token
template <std::size_t terms>
constexpr std::size_t kGroupTokens = kTileInputs / terms;

// What multiplies a token's sums of a block, and what multiplies the minimums there.
struct TokenScales {
  float scale, sum, half_sums[2];
  TENSOR_OPS_INLINE float half_sum(std::size_t half) const { return half_sums[half]; }
};

// Prepared tokens. 16 rows are a group; the last one may have fewer tokens. A group has the rows of
// all its tokens for one block of 32 columns after the other, then their scales likewise. Of two
// terms, the integers 254 q0 + q1 are kept as 256 h + l, whose sums a shuffle of bytes joins.
template <std::size_t terms>
struct TokenRows {
  static constexpr std::size_t kRowBytes = kBlockColumns, kTokenBytes = terms * kRowBytes;

  const unsigned char* prepared;
  std::size_t blocks, tokens;

  // A group with fewer tokens is read as if it were whole: up to 16 rows behind its last block.
  static std::size_t bytes(std::size_t columns) {
    return columns / kBlockColumns * (kTokenBytes + sizeof(TokenScales)) + kTileInputs * kRowBytes;
  }

  // Of the group that begins at a token: how many it has, its first row, and its first scales.
  TENSOR_OPS_INLINE std::size_t tokens_from(std::size_t token) const {
    return tokens - token < kGroupTokens<terms> ? tokens - token : kGroupTokens<terms>;
  }
  TENSOR_OPS_INLINE std::size_t rows_at(std::size_t token) const {
    return token * blocks * (kTokenBytes + sizeof(TokenScales));
  }
  TENSOR_OPS_INLINE std::size_t scales_at(std::size_t token) const {
    return rows_at(token) + tokens_from(token) * blocks * kTokenBytes;
  }
  TENSOR_OPS_INLINE const unsigned char* rows(std::size_t token) const {
    return prepared + rows_at(token);
  }
  TENSOR_OPS_INLINE const TokenScales* scales(std::size_t token) const {
    return reinterpret_cast<const TokenScales*>(prepared + scales_at(token));
  }
};

// A block of one token, which prepare_block() fills.
template <std::size_t terms>
struct TokenBlock {
  float scale;
  TokenScales scales;
  std::int8_t q[terms][kBlockColumns];

  TENSOR_OPS_INLINE void set(const Integers<terms>& integers) {
    constexpr std::size_t half_columns = kBlockColumns / 2;
    std::int32_t sums[2];
    for (std::size_t half = 0; half < 2; ++half) {
      const std::size_t first = half * half_columns;
      if constexpr (terms == 1) {
        sums[half] = store_half(q[0] + first, integers[0] + first);
      } else {
        const Ints joined = load_vector<Ints>(integers[0] + first) * 254 +
                            load_vector<Ints>(integers[terms - 1] + first);
        // The lowest byte, to which the others are cut off when it is stored, has a sign.
        std::int32_t low[half_columns], high[half_columns];
        store_vector(low, joined);
        store_vector(high, (joined + 128) >> 8);
        sums[half] = 256 * store_half(q[0] + first, high) + store_half(q[terms - 1] + first, low);
      }
      scales.half_sums[half] = sum_from<terms>(-8 * sums[half]);
    }
    scales.sum = static_cast<float>(sums[0] + sums[1]) * (terms == 1 ? 1 : kSecondTerm);
  }
};

template <std::size_t terms>
void prepare_rows(const float* x, std::size_t columns, unsigned char* prepared, std::size_t token,
                  std::size_t tokens) {
  using Rows = TokenRows<terms>;
  const Rows all{prepared, columns / kBlockColumns, tokens};
  const std::size_t place = token % kGroupTokens<terms>, first = token - place;
  const std::size_t together = all.tokens_from(first);
  unsigned char* row = prepared + all.rows_at(first) + place * Rows::kTokenBytes;
  auto* const scales = reinterpret_cast<TokenScales*>(prepared + all.scales_at(first)) + place;
  // In two passes, as in prepare_int8().
  for (std::size_t b = 0; b < all.blocks; ++b)
    scales[b * together].scale = largest_magnitude(x + b * kBlockColumns);
  for (std::size_t b = 0; b < all.blocks; ++b, row += together * Rows::kTokenBytes) {
    TokenScales& of_block = scales[b * together];
    TokenBlock<terms> block;
    prepare_block<terms>(x + b * kBlockColumns, of_block.scale, block);
    of_block = block.scales;
    of_block.scale = block.scale;
    __builtin_memcpy(row, block.q, sizeof block.q);
  }
}

// Sums below 2^22, of one term.
TENSOR_OPS_INLINE Floats small_to_floats(Words sums) {
  return bit_cast<Floats>(sums + bit_cast<std::uint32_t>(0x1.8p23f)) - 0x1.8p23f;
}
// Sums times 256; the shuffle moves bytes to higher places.
TENSOR_OPS_INLINE Words times_256(Words sums) {
  const __m512i places =
      _mm512_broadcast_i32x4(_mm_setr_epi8(-1, 0, 1, 2, -1, 4, 5, 6, -1, 8, 9, 10, -1, 12, 13, 14));
  return bit_cast<Words>(_mm512_shuffle_epi8(bit_cast<__m512i>(sums), places));
}

// The stages of the sums of some tokens and `tiles` tiles of weights. A step multiplies one block
// and ends one that was multiplied kLag steps before. Steps have phases, since registers and the
// memory of the sums are used in turn.
template <std::size_t scales, bool has_minimum, std::size_t terms, std::size_t tiles,
          std::size_t tokens>
struct Stages {
  using Block = SignedBlock<scales, has_minimum>;
  static constexpr std::size_t kSumColumns = kBlockColumns / scales;
  static constexpr std::size_t kProducts = tiles * scales;  // of a step
  // The registers: sums, then weights, then activations.
  static constexpr std::size_t kSumRegisters = 4, kWeights = 4, kInputs = 6;
  static_assert(kSumRegisters % kProducts == 0);
  static constexpr std::size_t kStored = kSumRegisters / kProducts;  // steps behind the product
  static constexpr std::size_t kLag = kStored + 1;
  static constexpr std::size_t kPhases = kStored < 2 ? 2 : kStored;
  struct alignas(kLineBytes) Sums {
    Words of[2][tiles][scales][kTileInputs];
  };
  using Results = Floats[tokens][tiles];

  static void configure(std::size_t rows) {
    TileShapes shapes;
    for (std::size_t i = 0; i < kSumRegisters; ++i)
      shapes.set(i, static_cast<std::uint8_t>(rows), kLineBytes);
    for (std::size_t i = 0; i < 2; ++i) {
      shapes.set(kWeights + i, kSumColumns / 4, kLineBytes);
      shapes.set(kInputs + i, static_cast<std::uint8_t>(rows), kSumColumns);
    }
    tile_configure(shapes);
  }

  // Product i of a step.
  template <std::size_t phase, std::size_t i>
  static TENSOR_OPS_INLINE void multiply(const Block* w, const unsigned char* x, Sums& sums) {
    constexpr std::size_t tile = i % tiles, scale = i / tiles;
    constexpr int sum = (phase * kProducts + i) % kSumRegisters;
    constexpr int weight = kWeights + i % 2, input = kInputs + (phase * scales + scale) % 2;
    constexpr std::size_t of_tile = tile * sizeof(Block), of_scale = scale * kSumColumns;
    constexpr std::size_t stored = (phase + kStored) % 2 * tiles * scales + tile * scales + scale;
    if constexpr (tile == 0) tile_load<input, of_scale>(x, kBlockColumns);
    tile_load<weight, of_tile + of_scale / 4 * kLineBytes>(w, kLineBytes);
    tile_store<sum, stored * sizeof sums.of[0][0][0]>(&sums, kLineBytes);
    tile_zero<sum>();
    tile_add_products<sum, input, weight>();
  }
  template <std::size_t phase>
  static TENSOR_OPS_INLINE void multiply(const Block* w, const unsigned char* x, Sums& sums) {
    repeat<kProducts>([&](auto i) TENSOR_OPS_INLINE_LAMBDA { multiply<phase, i>(w, x, sums); });
  }

  template <std::size_t phase, std::size_t first, std::size_t count>
  static TENSOR_OPS_INLINE void end(const Block* w, const TokenScales* x, const Sums& sums,
                                    Results& results) {
    TENSOR_OPS_UNROLLED_FOR (i, count) {
      const std::size_t token = first + i;
      TENSOR_OPS_UNROLLED_FOR (tile, tiles) {
        w[tile].end.add_totals(
            results[token][tile], x[token], [&](std::size_t scale) TENSOR_OPS_INLINE_LAMBDA {
              const Words* const of = sums.of[(phase + kLag) % 2][tile][scale] + token * terms;
              if constexpr (terms == 1)
                return small_to_floats(of[0]);
              else
                return __builtin_convertvector(bit_cast<Ints>(times_256(of[0]) + of[1]), Floats);
            });
      }
    }
  }

  // The products are spread over what ends the other block.
  template <std::size_t phase>
  static TENSOR_OPS_INLINE void step(const Block* w, const unsigned char* x, const Block* ended,
                                     const TokenScales* scales_of_ended, Sums& sums,
                                     Results& results) {
    repeat<4>([&](auto quarter) TENSOR_OPS_INLINE_LAMBDA {
      if constexpr (quarter * kProducts % 4 == 0)
        multiply<phase, quarter * kProducts / 4>(w, x, sums);
      constexpr std::size_t begin = quarter * tokens / 4, behind = (quarter + 1) * tokens / 4;
      end<phase, begin, behind - begin>(ended, scales_of_ended, sums, results);
    });
  }

  // Calls body(phase) with the phase as a constant.
  template <class Body>
  static TENSOR_OPS_INLINE void in_phase(std::size_t phase, Body body) {
    static_assert(kPhases == 2 || kPhases == 4);
    switch (phase % kPhases) {
      case 0:
        return body(std::integral_constant<std::size_t, 0>{});
      case 1:
        return body(std::integral_constant<std::size_t, 1>{});
      case 2:
        return body(std::integral_constant<std::size_t, 2 % kPhases>{});
      default:
        return body(std::integral_constant<std::size_t, 3 % kPhases>{});
    }
  }
};

// A group of tokens by tiles that lie one behind the other and are read once. Blocks are unpacked
// some steps before they are multiplied, so that memory is read all the time. `most` tokens have
// registers.
template <std::size_t scales, bool has_minimum, std::size_t terms, std::size_t most>
class FewTokens {
  using Pipeline = Stages<scales, has_minimum, terms, 1, most>;
  using Block = SignedBlock<scales, has_minimum>;
  using Rows = TokenRows<terms>;
  // Blocks are unpacked some at a time, at least kAhead before they are multiplied, and kept until
  // they are ended.
  static constexpr std::size_t kTogether = 4, kAhead = 2, kKept = 16;
  static_assert(Pipeline::kLag + 2 * kTogether + kAhead <= kKept);
  static constexpr std::size_t kPrefetched = 4096;  // bytes ahead

 public:
  FewTokens(const SignedFormat& format, const unsigned char* tiles, std::size_t tile_bytes,
            std::size_t num_tiles, const Rows& x, std::size_t token)
      : format_(format),
        tile_(tiles),
        tile_bytes_(tile_bytes),
        num_tiles_(num_tiles),
        left_(num_tiles * x.blocks),
        blocks_(x.blocks),
        tokens_(x.tokens_from(token)),
        row_bytes_(tokens_ * Rows::kTokenBytes),
        rows_(x.rows(token)),
        scales_(x.scales(token)) {}

  void multiply(float* out, std::size_t out_stride) {
    unpack(Pipeline::kLag + kAhead);
    while (multiplied_ < Pipeline::kLag) {
      Pipeline::in_phase(multiplied_, [&](auto phase) TENSOR_OPS_INLINE_LAMBDA {
        Pipeline::template multiply<phase>(kept(multiplied_), rows_ + place_ * row_bytes_, sums_);
      });
      skip(1);
    }
    for (std::size_t t = 0; t < num_tiles_; ++t) multiply_tile(out + t * kTileRows, out_stride);
  }

 private:
  void multiply_tile(float* out, std::size_t out_stride) {
    typename Pipeline::Results results = {};
    const TokenScales* of_block = scales_;
    const std::size_t tokens = tokens_, row_bytes = row_bytes_;
    for (std::size_t b = 0, some; b < blocks_; b += some) {
      some = kTogether;
      if (some > blocks_ - b) some = blocks_ - b;
      if (some > blocks_ - place_) some = blocks_ - place_;
      unpack(multiplied_ + some + kAhead);
      const unsigned char* row = rows_ + place_ * row_bytes;
      const std::size_t begin = multiplied_;
      for (std::size_t i = begin; i < begin + some; ++i) {
        Pipeline::in_phase(i, [&](auto phase) TENSOR_OPS_INLINE_LAMBDA {
          Pipeline::template step<phase>(kept(i), row, kept(i - Pipeline::kLag), of_block, sums_,
                                         results);
        });
        row += row_bytes;
        of_block += tokens;
      }
      skip(some);
    }
    TENSOR_OPS_UNROLLED_FOR (token, most) {
      if (token < tokens) store_vector(out + token * out_stride, results[token][0]);
    }
  }

  const Block* kept(std::size_t block) const { return kept_ + block % kKept; }

  // The steps behind the last block multiply what is there; no one reads those sums.
  void skip(std::size_t some) {
    multiplied_ += some;
    place_ += some;
    if (place_ == blocks_) place_ = 0;
  }

  // Unpacks blocks until there are so many, or all.
  void unpack(std::size_t wanted) {
    while (unpacked_ < wanted && left_ > 0) {
      std::size_t some = blocks_ - unpacked_of_tile_;
      const std::size_t kept = unpacked_ % kKept;
      if (some > kTogether) some = kTogether;
      if (some > kKept - kept) some = kKept - kept;
      format_.unpack(tile_, tile_bytes_, 1, unpacked_of_tile_, some, terms == 1 ? 1 : kSecondTerm,
                     kPrefetched, kept_ + kept);
      unpacked_ += some;
      left_ -= some;
      unpacked_of_tile_ += some;
      if (unpacked_of_tile_ < blocks_) continue;
      unpacked_of_tile_ = 0;
      tile_ += tile_bytes_;
    }
  }

  Block kept_[kKept];
  typename Pipeline::Sums sums_;
  const SignedFormat& format_;
  // The tile whose blocks are unpacked next, how many there are and were, and how many are left.
  const unsigned char* tile_;
  std::size_t tile_bytes_, num_tiles_, left_, unpacked_ = 0, unpacked_of_tile_ = 0;
  std::size_t blocks_, tokens_, row_bytes_;
  const unsigned char* rows_;
  const TokenScales* scales_;
  // How many blocks were multiplied, and which of its tile comes next.
  std::size_t multiplied_ = 0, place_ = 0;
};

template <std::size_t scales, bool has_minimum, std::size_t terms, std::size_t most>
void multiply_group(const SignedFormat& format, const unsigned char* tiles, std::size_t tile_bytes,
                    std::size_t num_tiles, const TokenRows<terms>& x, std::size_t token, float* out,
                    std::size_t out_stride) {
  const std::size_t tokens = x.tokens_from(token);
  if constexpr (most > 4)
    if (tokens <= most / 2)
      return multiply_group<scales, has_minimum, terms, most / 2>(
          format, tiles, tile_bytes, num_tiles, x, token, out, out_stride);
  Stages<scales, has_minimum, terms, 1, most>::configure(tokens * terms);
  FewTokens<scales, has_minimum, terms, most>(format, tiles, tile_bytes, num_tiles, x, token)
      .multiply(out, out_stride);
}

// Many tokens, 16 rows of activations at a time: 16 tokens by one tile, or 8 of two terms by two
// tiles, so that 16 vectors of results have registers either way. Blocks are unpacked once for a
// part of the tokens, whose rows and sums between groups of blocks stay in the second cache.
template <std::size_t scales, bool has_minimum, std::size_t terms>
class ManyTokens {
 public:
  static constexpr std::size_t kTiles = terms, kTogether = 8;  // tiles

 private:
  static constexpr std::size_t kTokens = kGroupTokens<terms>;
  static constexpr std::size_t kPart = kMostSums / (kTogether * kTileRows);  // tokens
  static_assert(kPart % kTokens == 0 && kTogether % kTiles == 0);
  static constexpr std::size_t kUnpacked = 36 / kTiles;  // half of a cache of 48 KB
  static constexpr std::size_t kPrefetched = 256;        // bytes ahead, in the second cache by then
  using Pipeline = Stages<scales, has_minimum, terms, kTiles, kTokens>;
  using Block = SignedBlock<scales, has_minimum>;
  using Rows = TokenRows<terms>;

 public:
  static void configure() { Pipeline::configure(kTileInputs); }

  // num_tiles is a multiple of kTiles, at most kTogether.
  ManyTokens(const SignedFormat& format, const unsigned char* tiles, std::size_t tile_bytes,
             std::size_t num_tiles, const Rows& x, float* sums)
      : format_(format),
        tiles_(tiles),
        tile_bytes_(tile_bytes),
        num_tiles_(num_tiles),
        groups_((x.blocks + kUnpacked - 1) / kUnpacked),
        x_(x),
        sums_(sums) {}

  void multiply(float* out, std::size_t out_stride) const {
    const std::size_t parts = (x_.tokens + kPart - 1) / kPart, step = parts * kTokens;
    const std::size_t part = (x_.tokens + step - 1) / step * kTokens;
    for (std::size_t first = 0; first < x_.tokens; first += part) {
      const std::size_t left = x_.tokens - first;
      for (std::size_t g = 0; g < groups_; ++g)
        for (std::size_t t = 0; t < num_tiles_; t += kTiles)
          multiply_blocks(t, g, first, left < part ? left : part,
                          {out + first * out_stride + t * kTileRows, out_stride});
    }
  }

 private:
  // Where tokens have their results.
  struct Sums {
    float* first;
    std::size_t stride;
    TENSOR_OPS_INLINE float* at(std::size_t token, std::size_t tile) const {
      return first + token * stride + tile * kTileRows;
    }
  };

  std::size_t begin_of(std::size_t group) const { return x_.blocks * group / groups_; }

  // A group of blocks of some tiles, by tokens from `first` on.
  void multiply_blocks(std::size_t tile, std::size_t group, std::size_t first, std::size_t tokens,
                       const Sums& out) const {
    Block blocks[kUnpacked][kTiles];
    const std::size_t begin = begin_of(group), num_blocks = begin_of(group + 1) - begin;
    format_.unpack(tiles_ + tile * tile_bytes_, tile_bytes_, kTiles, begin, num_blocks,
                   terms == 1 ? 1 : kSecondTerm, kPrefetched, blocks);

    const std::size_t next_tile = tile + kTiles < num_tiles_ ? tile + kTiles : 0;
    const std::size_t next_group = next_tile > 0 ? group : (group + 1) % groups_;
    const std::size_t place = format_.place(begin_of(next_group));
    NextBlocks<kTiles> next(tiles_ + next_tile * tile_bytes_ + place,
                            format_.place(begin_of(next_group + 1)) - place, tile_bytes_,
                            tokens / kTokens + 1);
    const Sums between{sums_ + tile * kPart * kTileRows, kTiles * kTileRows};
    run(blocks, num_blocks, begin, first, tokens, group > 0 ? between : Sums{},
        group + 1 < groups_ ? between : out, next);
  }

  // The results so far are in `before`, if any.
  __attribute__((noinline)) void run(const Block (*blocks)[kTiles], std::size_t num_blocks,
                                     std::size_t first_block, std::size_t first, std::size_t tokens,
                                     const Sums& before, const Sums& out,
                                     NextBlocks<kTiles>& next) const {
    typename Pipeline::Sums sums;
    // The product of the next step: a block, the rows of a group of tokens, and how many blocks are
    // left with that group.
    std::size_t steps = 0, ahead = first, left = num_blocks;
    const Block(*block)[kTiles] = blocks;
    std::size_t row_bytes = x_.tokens_from(ahead) * Rows::kTokenBytes;
    const unsigned char* row = x_.rows(ahead) + first_block * row_bytes;
    const auto skip = [&](std::size_t some) {
      left -= some;
      if (left > 0) return;
      left = num_blocks;
      block = blocks;
      // The steps behind the last group multiply it again; no one reads those sums.
      if (ahead + kTokens < first + tokens) ahead += kTokens;
      row_bytes = x_.tokens_from(ahead) * Rows::kTokenBytes;
      row = x_.rows(ahead) + first_block * row_bytes;
    };
    while (steps < Pipeline::kLag) {
      Pipeline::in_phase(steps, [&](auto phase) TENSOR_OPS_INLINE_LAMBDA {
        Pipeline::template multiply<phase>(*block, row, sums);
      });
      ++steps;
      ++block;
      row += row_bytes;
      skip(1);
    }
    for (std::size_t t = 0; t < tokens; t += kTokens) {
      next.prefetch_some();
      typename Pipeline::Results results = {};
      if (before.first)
        TENSOR_OPS_UNROLLED_FOR (token, kTokens) {
          TENSOR_OPS_UNROLLED_FOR (tile, kTiles) {
            results[token][tile] = load_vector<Floats>(before.at(t + token, tile));
          }
        }
      const std::size_t together = x_.tokens_from(first + t);
      const TokenScales* of_block = x_.scales(first + t) + first_block * together;
      const Block(*ended)[kTiles] = blocks;
      for (std::size_t not_ended = num_blocks, some; not_ended > 0; not_ended -= some) {
        some = left < not_ended ? left : not_ended;
        for (const std::size_t behind = steps + some; steps < behind; ++steps) {
          Pipeline::in_phase(steps, [&](auto phase) TENSOR_OPS_INLINE_LAMBDA {
            Pipeline::template step<phase>(*block, row, *ended, of_block, sums, results);
          });
          ++block;
          ++ended;
          row += row_bytes;
          of_block += together;
        }
        skip(some);
      }
      TENSOR_OPS_UNROLLED_FOR (token, kTokens) {
        if (token < together)
          TENSOR_OPS_UNROLLED_FOR (tile, kTiles) {
            store_vector(out.at(t + token, tile), results[token][tile]);
          }
      }
    }
  }

  const SignedFormat& format_;
  const unsigned char* tiles_;
  std::size_t tile_bytes_, num_tiles_, groups_;
  const Rows& x_;
  float* sums_;
};

template <std::size_t scales, bool has_minimum, std::size_t terms>
void multiply_signed(const SignedFormat& format, const unsigned char* tiles, std::size_t tile_bytes,
                     std::size_t num_tiles, std::size_t columns, const unsigned char* prepared,
                     std::size_t tokens, float* sums, float* out, std::size_t out_stride) {
  using Many = ManyTokens<scales, has_minimum, terms>;
  const TokenRows<terms> x{prepared, columns / kBlockColumns, tokens};
  std::size_t tile = 0;
  if (sums && tokens > kGroupTokens<terms>) {
    const std::size_t together = num_tiles / Many::kTiles * Many::kTiles;
    if (together > 0) Many::configure();
    while (tile < together) {
      const std::size_t left = together - tile,
                        some = left < Many::kTogether ? left : Many::kTogether;
      Many(format, tiles + tile * tile_bytes, tile_bytes, some, x, sums)
          .multiply(out + tile * kTileRows, out_stride);
      tile += some;
    }
  }
  // A tile that is left over is read once for each group of tokens.
  if (tile < num_tiles)
    for (std::size_t token = 0; token < tokens; token += kGroupTokens<terms>)
      multiply_group<scales, has_minimum, terms, kGroupTokens<terms>>(
          format, tiles + tile * tile_bytes, tile_bytes, num_tiles - tile, x, token,
          out + token * out_stride + tile * kTileRows, out_stride);
  tile_release();
}

template <std::size_t terms>
constexpr SignedProducts products_of_terms{
    multiply_signed<1, false, terms>, multiply_signed<1, true, terms>,
    multiply_signed<2, false, terms>, multiply_signed<2, true, terms>};

}  // namespace

constexpr SignedProducts signed_products[2] = {products_of_terms<1>, products_of_terms<2>};

std::size_t one_term_bytes(std::size_t columns) { return TokenRows<1>::bytes(columns); }
std::size_t two_terms_bytes(std::size_t columns) { return TokenRows<2>::bytes(columns); }
void prepare_one_term(const float* x, std::size_t columns, unsigned char* prepared, std::size_t,
                      std::size_t token, std::size_t tokens) {
  prepare_rows<1>(x, columns, prepared, token, tokens);
}
void prepare_two_terms(const float* x, std::size_t columns, unsigned char* prepared, std::size_t,
                       std::size_t token, std::size_t tokens) {
  prepare_rows<2>(x, columns, prepared, token, tokens);
}

}  // namespace tensor_ops::TENSOR_OPS_LEVEL
