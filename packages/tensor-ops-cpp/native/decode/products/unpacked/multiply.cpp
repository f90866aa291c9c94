// Products of integer weights with many tokens of two int8 terms, which int16 holds, on AVX-512
// with VNNI: the weights of some blocks are unpacked to int16 once, and all tokens multiplied by
// them.
//
// Where additions of vectors run beside multiplications and not in their place, half of the
// multiplications are replaced by additions, with an identity of S. Winograd ("A New Algorithm for
// Inner Product", IEEE Transactions on Computers C-17, 1968):
//
//     w0 x0 + w1 x1 = (w0 + x1) (w1 + x0) - w0 w1 - x0 x1
//
// The subtrahends are computed once for all tokens, and once for all rows. The sums wrap in
// between and end in the same integers, so that the results have the same bits.
#include "decode/products/unpacked/block.h"
#include "decode/products/unpacked/next_blocks.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// The sums of this many tokens and two tiles fill the registers. Tokens that are left over are
// multiplied one by one: loops for other numbers would take longer to compile than they save.
constexpr std::size_t kTogetherTokens = 4;
constexpr std::size_t kUnpackedBlocks = 9;  // at most: with two tiles, most of a cache of 32 KB

// GCC would load some through an integer register.
TENSOR_OPS_INLINE Shorts load_pair(const std::int16_t* pair) {
  Shorts all;
  asm("vpbroadcastd %1, %0" : "=v"(all) : "m"(*reinterpret_cast<const std::int16_t (*)[2]>(pair)));
  return all;
}

// Tokens and their sums over the blocks that were multiplied before, which may lie elsewhere than
// the results. `before` is null for the first blocks.
struct ContinuedTokens : Tokens {
  const float* before;
  std::size_t before_stride;

  TENSOR_OPS_INLINE void skip(std::size_t tokens) {
    Tokens::skip(tokens);
    if (before) before += tokens * before_stride;
  }
  TENSOR_OPS_INLINE Floats load(std::size_t token, std::size_t part) const {
    return load_vector<Floats>(before + token * before_stride + part * kLanes<float>);
  }
};

// `tiles` tiles of 16 rows times some tokens; `winograd` says whether by the identity.
template <std::size_t scales, bool has_minimum, std::size_t tiles, bool winograd>
struct UnpackedProduct {
  using Unpacked = UnpackedBlock<scales, has_minimum>;
  using Block = PairBlock<2>;
  static constexpr std::size_t kWords = 2 * kDotWords / scales;

  static TENSOR_OPS_INLINE Words start(const Unpacked& w, const Block& x, std::size_t scale) {
    if constexpr (!winograd) return Words{};
    const std::int32_t products = scales == 1 ? x.minus_all_products : x.minus_products[scale];
    return w.minus_products[scale] + bit_cast<Words>(splat<Ints>(products));
  }

  template <std::size_t count>
  static void run(const Unpacked (*blocks)[tiles], std::size_t num_blocks,
                  const ContinuedTokens& tokens) {
    const Block* x[count];
    TENSOR_OPS_UNROLLED_FOR (token, count) {
      x[token] = reinterpret_cast<const Block*>(tokens.at(token));
    }
    Floats results[count][tiles] = {};
    if (tokens.before)
      TENSOR_OPS_UNROLLED_FOR (token, count) {
        TENSOR_OPS_UNROLLED_FOR (tile, tiles) {
          results[token][tile] = tokens.load(token, tile);
        }
      }
    for (std::size_t b = 0; b < num_blocks; ++b) {
      // GCC would keep the place of every activation in a register of its own.
      TENSOR_OPS_UNROLLED_FOR (token, count) {
        asm("" : "+r"(x[token]));
      }
      const Unpacked(&w)[tiles] = blocks[b];
      Floats totals[scales][count][tiles];
      TENSOR_OPS_UNROLLED_FOR (scale, scales) {
        Ints sums[count][tiles];
        TENSOR_OPS_UNROLLED_FOR (token, count) {
          TENSOR_OPS_UNROLLED_FOR (tile, tiles) {
            sums[token][tile] = bit_cast<Ints>(start(w[tile], *x[token], scale));
            compute_here(sums[token][tile]);
          }
        }
        TENSOR_OPS_UNROLLED_FOR (word, kWords) {
          const std::size_t j = scale * kWords + word;
          forget_memory();
          Shorts even[tiles], odd[tiles];
          TENSOR_OPS_UNROLLED_FOR (tile, tiles) {
            even[tile] = w[tile].even[j];
            odd[tile] = w[tile].odd[j];
            compute_here(even[tile]);
            compute_here(odd[tile]);
          }
          TENSOR_OPS_UNROLLED_FOR (token, count) {
            const Shorts x_even = load_pair(x[token]->q + 4 * j);
            const Shorts x_odd = load_pair(x[token]->q + 4 * j + 2);
            TENSOR_OPS_UNROLLED_FOR (tile, tiles) {
              Ints& sum = sums[token][tile];
              if constexpr (winograd) {
                sum = dot_shorts(sum, even[tile] + x_odd, odd[tile] + x_even);
              } else {
                sum = dot_shorts(sum, even[tile], x_even);
                compute_here(sum);
                sum = dot_shorts(sum, odd[tile], x_odd);
              }
              compute_here(sum);
            }
          }
        }
        TENSOR_OPS_UNROLLED_FOR (token, count) {
          TENSOR_OPS_UNROLLED_FOR (tile, tiles) {
            totals[scale][token][tile] = __builtin_convertvector(sums[token][tile], Floats);
          }
        }
      }
      TENSOR_OPS_UNROLLED_FOR (token, count) {
        TENSOR_OPS_UNROLLED_FOR (tile, tiles) {
          w[tile].end.add_totals(results[token][tile], *x[token],
                                 [&](std::size_t scale) TENSOR_OPS_INLINE_LAMBDA {
                                   return totals[scale][token][tile];
                                 });
          compute_here(results[token][tile]);
        }
        ++x[token];
      }
    }
    TENSOR_OPS_UNROLLED_FOR (token, count) {
      TENSOR_OPS_UNROLLED_FOR (tile, tiles) {
        tokens.store(token, tile, results[token][tile]);
      }
    }
  }

  static TENSOR_OPS_INLINE void run_all(const Unpacked (*blocks)[tiles], std::size_t num_blocks,
                                        ContinuedTokens tokens, std::size_t remaining,
                                        NextBlocks<tiles>& next) {
    for (; remaining >= kTogetherTokens; remaining -= kTogetherTokens) {
      next.prefetch_some();
      run<kTogetherTokens>(blocks, num_blocks, tokens);
      tokens.skip(kTogetherTokens);
    }
    for (; remaining > 0; --remaining) {
      run<1>(blocks, num_blocks, tokens);
      tokens.skip(1);
    }
  }
};

// The largest numbers of tiles and of tokens that are multiplied together. The sums of 8 tiles and
// 192 tokens, and the activations of kUnpackedBlocks blocks, take a quarter of a cache of 1 MB.
constexpr std::size_t kMostTiles = 8, kMostTokens = kMostSums / (kMostTiles * kTileRows);

// The product of up to kMostTiles tiles, which are tile_bytes apart, and some tokens. The columns
// are multiplied in groups of blocks. Between groups the sums so far are in `sums`, where a token
// has sums_stride floats; the last group writes the results.
template <std::size_t scales, bool has_minimum>
class UnpackedTiles {
 public:
  UnpackedTiles(const UnpackedFormat& format, const unsigned char* tiles, std::size_t tile_bytes,
                std::size_t num_tiles, std::size_t columns, Tokens tokens, std::size_t num_tokens,
                float* sums, std::size_t sums_stride)
      : format_(format),
        tiles_(tiles),
        tile_bytes_(tile_bytes),
        num_tiles_(num_tiles),
        num_blocks_(columns / kBlockColumns),
        num_groups_((num_blocks_ + kUnpackedBlocks - 1) / kUnpackedBlocks),
        tokens_(tokens),
        num_tokens_(num_tokens),
        sums_(sums),
        sums_stride_(sums_stride) {}

  // The blocks are the outer loop, so that their activations are read again for all tiles while the
  // caches have them.
  void multiply() const {
    for (std::size_t group = 0; group < num_groups_; ++group) {
      std::size_t tile = 0;
      for (; tile + 2 <= num_tiles_; tile += 2)
        multiply_blocks<2>(tile, group, tile + 4 <= num_tiles_ ? tile + 2 : 0);
      if (tile < num_tiles_) multiply_blocks<1>(tile, group, 0);
    }
  }

 private:
  std::size_t begin_of(std::size_t group) const { return num_blocks_ * group / num_groups_; }

  // Multiplies a group of blocks of `count` tiles, and prefetches the blocks of next_tile: those of
  // the same group if next_tile is larger than `tile`, else those of the next group.
  template <std::size_t count>
  void multiply_blocks(std::size_t tile, std::size_t group, std::size_t next_tile) const {
    UnpackedBlock<scales, has_minimum> blocks[kUnpackedBlocks][count];
    const std::size_t begin = begin_of(group), num_blocks = begin_of(group + 1) - begin;
    format_.unpack(tiles_ + tile * tile_bytes_, tile_bytes_, count, begin, num_blocks, blocks);

    const std::size_t next_group = next_tile > tile ? group : (group + 1) % num_groups_;
    const std::size_t place = format_.place(begin_of(next_group));
    NextBlocks<count> next(tiles_ + next_tile * tile_bytes_ + place,
                           format_.place(begin_of(next_group + 1)) - place, tile_bytes_,
                           num_tokens_ / kTogetherTokens + 1);
    ContinuedTokens tokens{tokens_, nullptr, sums_stride_};
    tokens.prepared += begin * sizeof(PairBlock<2>);
    if (group > 0) tokens.before = sums_ + tile * kTileRows;
    if (group + 1 < num_groups_) {
      tokens.out = sums_;
      tokens.out_stride = sums_stride_;
    }
    tokens.out += tile * kTileRows;
    if (adds_beside_multiplies())
      UnpackedProduct<scales, has_minimum, count, true>::run_all(blocks, num_blocks, tokens,
                                                                 num_tokens_, next);
    else
      UnpackedProduct<scales, has_minimum, count, false>::run_all(blocks, num_blocks, tokens,
                                                                  num_tokens_, next);
  }

  const UnpackedFormat& format_;
  const unsigned char* tiles_;
  std::size_t tile_bytes_, num_tiles_, num_blocks_, num_groups_;
  Tokens tokens_;
  std::size_t num_tokens_;
  float* sums_;
  std::size_t sums_stride_;
};

template <std::size_t scales, bool has_minimum>
void multiply_unpacked(const UnpackedFormat& format, const unsigned char* tiles,
                       std::size_t tile_bytes, std::size_t num_tiles, std::size_t columns,
                       const unsigned char* prepared, std::size_t prepared_stride,
                       std::size_t count, float* sums, float* out, std::size_t out_stride) {
  // The tokens are divided into equal parts, each a multiple of kTogetherTokens except for the
  // last.
  const std::size_t parts = (count + kMostTokens - 1) / kMostTokens, step = parts * kTogetherTokens;
  const std::size_t part = (count + step - 1) / step * kTogetherTokens;
  for (std::size_t t = 0; t < num_tiles; t += kMostTiles) {
    const std::size_t some = num_tiles - t < kMostTiles ? num_tiles - t : kMostTiles;
    Tokens tokens{prepared, prepared_stride, out + t * kTileRows, out_stride};
    for (std::size_t left = count; left > 0; tokens.skip(part)) {
      const std::size_t taken = left < part ? left : part;
      UnpackedTiles<scales, has_minimum>(format, tiles + t * tile_bytes, tile_bytes, some, columns,
                                         tokens, taken, sums ? sums : tokens.out,
                                         sums ? some * kTileRows : out_stride)
          .multiply();
      left -= taken;
    }
  }
}

}  // namespace

constexpr UnpackedProducts unpacked_products{
    multiply_unpacked<1, false>, multiply_unpacked<1, true>, multiply_unpacked<2, false>,
    multiply_unpacked<2, true>};

}  // namespace tensor_ops::TENSOR_OPS_LEVEL
