// Products of bf16 weights on the tile registers of AMX, for any number of tokens. An activation
// has one bfloat16 term, to which it is rounded, or three, which together are the float32.
//
// A tile of weights is 32 columns of 16 rows, sixteen lines as they are packed. It is multiplied by
// up to 16 rows of activations, each a term of a token; the sums of the terms are added at the end,
// the smallest first. So the bits of a token do not depend on which rows are beside its own.
#pragma once

#include "decode/products/multiply.h"
#include "decode/products/tile_unit.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

constexpr std::size_t kTileColumns = 32, kTileBytes = kTileColumns * kLineBytes / 2;
constexpr std::size_t kTileTerms = 16;  // rows of activations

// How many steps of 32 columns a product takes. The last one has zeros behind the columns.
TENSOR_OPS_INLINE std::size_t column_steps(std::size_t columns) {
  return (columns + kTileColumns - 1) / kTileColumns;
}

// The prepared terms of all tokens: groups of 16 rows, of which the last may have fewer. A group
// has a line of each row, which is 32 columns, for one step after the other.
struct TermRows {
  const unsigned char* prepared;
  std::size_t steps, rows;

  TENSOR_OPS_INLINE std::size_t rows_from(std::size_t row) const {
    return rows - row < kTileTerms ? rows - row : kTileTerms;
  }
  // Where the first line of a group is, which begins at a multiple of 16 rows.
  TENSOR_OPS_INLINE std::size_t place_of_group(std::size_t row) const {
    return row * steps * kLineBytes;
  }
  TENSOR_OPS_INLINE const unsigned char* group(std::size_t row) const {
    return prepared + place_of_group(row);
  }
};

template <std::size_t terms>
std::size_t term_bytes(std::size_t columns) {
  return terms * column_steps(columns) * kLineBytes;
}

// Three terms are cut off, not rounded, so that the largest float32 has finite ones. They are exact
// but for parts below 2^-126.
template <std::size_t terms>
TENSOR_OPS_INLINE void split(Floats x, Halves (&to)[terms]) {
  if constexpr (terms == 1) {
    to[0] = BFloat16::narrow(x);
  } else {
    for (Halves& term : to) {
      const BitsOf<Floats> upper = bits(x) & 0xFFFF0000u;
      term = bit_cast<Halves>(_mm512_cvtepi32_epi16(bit_cast<__m512i>(upper >> 16)));
      x -= bit_cast<Floats>(upper);
    }
  }
}

template <std::size_t terms>
void prepare_terms(const float* x, std::size_t columns, unsigned char* prepared, std::size_t,
                   std::size_t token, std::size_t tokens) {
  const TermRows all{prepared, column_steps(columns), tokens * terms};
  unsigned char* at[terms];
  std::size_t together[terms];
  for (std::size_t i = 0; i < terms; ++i) {
    const std::size_t row = token * terms + i, first = row / kTileTerms * kTileTerms;
    at[i] = prepared + all.place_of_group(first) + (row - first) * kLineBytes;
    together[i] = all.rows_from(first);
  }
  for (std::size_t step = 0; step < all.steps; ++step) {
    alignas(64) float last[kTileColumns] = {};
    const std::size_t left = columns - step * kTileColumns;
    const float* from = x + step * kTileColumns;
    if (left < kTileColumns) {
      __builtin_memcpy(last, from, left * sizeof *from);
      from = last;
    }
    for (std::size_t half = 0; half < 2; ++half) {
      Halves split_terms[terms];
      split<terms>(load_vector<Floats>(from + half * kLanes<float>), split_terms);
      for (std::size_t i = 0; i < terms; ++i)
        store_vector(at[i] + step * together[i] * kLineBytes + half * sizeof(Halves),
                     split_terms[i]);
    }
  }
}

// Sums of `groups` groups of rows by `tiles` tiles of weights in registers: the first group by each
// tile, then the next. They are followed by the registers of a group each, and those of weights.
template <int groups, int tiles>
struct TileSums {
  static constexpr int kTerms = groups * tiles, kWeights = kTerms + groups;
  static_assert(kWeights + tiles <= 8, "registers");

  static void configure(const std::size_t (&rows)[groups]) {
    TileShapes shapes;
    for (int g = 0; g < groups; ++g) {
      const auto count = static_cast<std::uint8_t>(rows[g]);
      shapes.set(kTerms + g, count, kLineBytes);
      for (int t = 0; t < tiles; ++t) shapes.set(g * tiles + t, count, kLineBytes);
    }
    for (int t = 0; t < tiles; ++t) shapes.set(kWeights + t, kTileTerms, kLineBytes);
    tile_configure(shapes);
  }

  // Where the sums of a group and a tile are in memory, a line for each row.
  template <class Do>
  static TENSOR_OPS_INLINE void each(float* sums, std::size_t tile_sums, Do what) {
    repeat<groups>([&](auto group) TENSOR_OPS_INLINE_LAMBDA {
      repeat<tiles>([&](auto tile) TENSOR_OPS_INLINE_LAMBDA {
        constexpr int at = static_cast<int>(group * tiles + tile);
        what(std::integral_constant<int, at>{},
             sums + tile * tile_sums + group * kTileTerms * kTileRows);
      });
    });
  }
  static TENSOR_OPS_INLINE void zero() {
    repeat<groups * tiles>([](auto at)
                               TENSOR_OPS_INLINE_LAMBDA { tile_zero<static_cast<int>(at)>(); });
  }

  // Adds the products of some steps, whose weights are one tile behind the other. x has the lines
  // of each group in the first step, and the bytes from one step to the next.
  static TENSOR_OPS_INLINE void add(const unsigned char* const (&weights)[tiles],
                                    const unsigned char* const (&x)[groups],
                                    const std::size_t (&x_bytes)[groups], std::size_t steps,
                                    const unsigned char* ahead, std::size_t ahead_bytes) {
    for (std::size_t k = 0; k < steps; ++k) {
      prefetch_lines(ahead + k * ahead_bytes, ahead_bytes, {0});
      repeat<tiles>([&](auto tile) TENSOR_OPS_INLINE_LAMBDA {
        constexpr int weight = kWeights + static_cast<int>(tile);
        tile_load<weight>(weights[tile] + k * kTileBytes, kLineBytes);
        repeat<groups>([&](auto group) TENSOR_OPS_INLINE_LAMBDA {
          constexpr int term = kTerms + static_cast<int>(group);
          constexpr int at = static_cast<int>(group * tiles + tile);
          if constexpr (tile == 0) tile_load<term>(x[group] + k * x_bytes[group], kLineBytes);
          tile_add_bfloat16_products<at, term, weight>();
        });
      });
    }
  }
};

// The last step of a tile whose columns do not fill it, with zeros behind them.
struct LastStep {
  alignas(64) unsigned char lines[kTileBytes];

  TENSOR_OPS_INLINE void read(const unsigned char* tile, std::size_t columns) {
    const std::size_t whole = columns / kTileColumns * kTileBytes;
    const std::size_t bytes = number_tile_bytes<2>(columns) - whole;
    __builtin_memset(lines, 0, sizeof lines);
    __builtin_memcpy(lines, tile + whole, bytes);
  }
};

// out = the sums of each token's terms, which follow one another in `sums`.
template <std::size_t terms>
TENSOR_OPS_INLINE void add_terms(const float* sums, std::size_t tokens, float* out,
                                 std::size_t out_stride) {
  for (std::size_t t = 0; t < tokens; ++t, out += out_stride) {
    const float* const of_token = sums + t * terms * kTileRows;
    Floats sum = load_vector<Floats>(of_token + (terms - 1) * kTileRows);
    for (std::size_t i = terms - 1; i-- > 0;)
      sum = load_vector<Floats>(of_token + i * kTileRows) + sum;
    store_vector(out, sum);
  }
}

// One tile of weights, which is read once for up to three groups of rows.
template <std::size_t terms, int groups>
void multiply_groups(const unsigned char* tile, std::size_t columns, const TermRows& x,
                     std::size_t row, float* sums) {
  using Registers = TileSums<groups, 1>;
  const std::size_t whole = columns / kTileColumns;
  const unsigned char *lines[groups], *last_lines[groups];
  std::size_t rows[groups], bytes[groups];
  for (int g = 0; g < groups; ++g) {
    const std::size_t first = row + static_cast<std::size_t>(g) * kTileTerms;
    lines[g] = x.group(first);
    rows[g] = x.rows_from(first);
    bytes[g] = rows[g] * kLineBytes;
    last_lines[g] = lines[g] + whole * bytes[g];
  }
  Registers::configure(rows);
  Registers::zero();
  const unsigned char* const weights[] = {tile};
  Registers::add(weights, lines, bytes, whole, tile + Prefetching{}.ahead, kTileBytes);
  if (whole < x.steps) {
    LastStep last;
    last.read(tile, columns);
    const unsigned char* const last_weights[] = {last.lines};
    Registers::add(last_weights, last_lines, bytes, 1,
                   tile + Prefetching{}.ahead + whole * kTileBytes, 0);
  }
  Registers::each(
      sums, 0, [](auto at, float* to) TENSOR_OPS_INLINE_LAMBDA { tile_store<at>(to, kLineBytes); });
  tile_release();
}

template <std::size_t terms>
void multiply_terms(const unsigned char* tile, std::size_t columns, const unsigned char* prepared,
                    std::size_t, std::size_t tokens, float* out, std::size_t out_stride) {
  constexpr std::size_t together = 3 * kTileTerms;
  alignas(64) float sums[together * kTileRows];
  const TermRows x{prepared, column_steps(columns), tokens * terms};
  for (std::size_t row = 0; row < x.rows; row += together) {
    const std::size_t left = x.rows - row, rows = left < together ? left : together;
    if (rows > 2 * kTileTerms)
      multiply_groups<terms, 3>(tile, columns, x, row, sums);
    else if (rows > kTileTerms)
      multiply_groups<terms, 2>(tile, columns, x, row, sums);
    else
      multiply_groups<terms, 1>(tile, columns, x, row, sums);
    add_terms<terms>(sums, rows / terms, out + row / terms * out_stride, out_stride);
  }
}

// Many tokens: parts of the rows stay in the second cache beside some columns of two tiles, whose
// sums with a pair of groups are in registers. Between groups of columns they are in scratch.
template <std::size_t terms>
class ManyTerms {
 public:
  static constexpr std::size_t kColumnSteps = 64, kPartRows = 192, kTogether = 8;
  static constexpr std::size_t kTileSums = kPartRows * kTileRows;  // floats
  static_assert(kTogether * kTileSums <= kMostSums && kPartRows % (terms * 2 * kTileTerms) == 0);

  ManyTerms(const unsigned char* tiles, std::size_t tile_bytes, std::size_t num_tiles,
            std::size_t columns, const TermRows& x, float* sums)
      : tiles_(tiles),
        tile_bytes_(tile_bytes),
        num_tiles_(num_tiles),
        columns_(columns),
        x_(x),
        column_groups_((x.steps + kColumnSteps - 1) / kColumnSteps),
        sums_(sums) {}

  void multiply(float* out, std::size_t out_stride) const {
    for (std::size_t row = 0; row < x_.rows; row += kPartRows) {
      const std::size_t left = x_.rows - row, rows = left < kPartRows ? left : kPartRows;
      const std::size_t whole = rows / (2 * kTileTerms) * (2 * kTileTerms), rest = rows - whole;
      if (whole > 0) add_all<2>(row, whole, 0);
      if (rest > kTileTerms)
        add_all<2>(row + whole, rest, whole);
      else if (rest > 0)
        add_all<1>(row + whole, rest, whole);
      for (std::size_t t = 0; t < num_tiles_; ++t)
        add_terms<terms>(sums_ + t * kTileSums, rows / terms,
                         out + row / terms * out_stride + t * kTileRows, out_stride);
    }
    tile_release();
  }

 private:
  // All columns of some rows, whose sums begin at a row of the part.
  template <int groups>
  void add_all(std::size_t row, std::size_t rows, std::size_t row_of_part) const {
    constexpr std::size_t together = static_cast<std::size_t>(groups) * kTileTerms;
    std::size_t of_groups[groups];
    for (int g = 0; g < groups; ++g)
      of_groups[g] = x_.rows_from(row + static_cast<std::size_t>(g) * kTileTerms);
    float* const sums = sums_ + row_of_part * kTileRows;
    TileSums<groups, 2>::configure(of_groups);
    for (std::size_t c = 0; c < column_groups_; ++c)
      for (std::size_t t = 0; t + 2 <= num_tiles_; t += 2)
        for (std::size_t r = 0; r < rows; r += together)
          add<groups, 2>(c, t, row + r, sums + t * kTileSums + r * kTileRows, of_groups,
                         (rows + together - 1) / together, r / together);
    if (num_tiles_ % 2 == 0) return;
    TileSums<groups, 1>::configure(of_groups);
    for (std::size_t c = 0; c < column_groups_; ++c)
      for (std::size_t r = 0; r < rows; r += together)
        add<groups, 1>(c, num_tiles_ - 1, row + r,
                       sums + (num_tiles_ - 1) * kTileSums + r * kTileRows, of_groups, 1, 0);
  }

  // Some columns of a pair of groups and `tiles` tiles. Each of `pairs` pairs prefetches its share
  // of the next tiles' columns.
  template <int groups, int tiles>
  void add(std::size_t column_group, std::size_t tile, std::size_t row, float* sums,
           const std::size_t (&rows)[groups], std::size_t pairs, std::size_t pair) const {
    using Registers = TileSums<groups, tiles>;
    const std::size_t begin = x_.steps * column_group / column_groups_;
    const std::size_t end = x_.steps * (column_group + 1) / column_groups_;
    const std::size_t whole = columns_ / kTileColumns, behind = end < whole ? end : whole;
    if (column_group == 0)
      Registers::zero();
    else
      Registers::each(sums, kTileSums, [](auto at, float* from) TENSOR_OPS_INLINE_LAMBDA {
        tile_load<at>(from, kLineBytes);
      });
    const unsigned char *weights[tiles], *lines[groups], *last_weights[tiles], *last_lines[groups];
    std::size_t bytes[groups];
    for (int g = 0; g < groups; ++g) {
      bytes[g] = rows[g] * kLineBytes;
      const unsigned char* const of_group =
          x_.group(row + static_cast<std::size_t>(g) * kTileTerms);
      lines[g] = of_group + begin * bytes[g];
      last_lines[g] = of_group + whole * bytes[g];
    }
    for (int t = 0; t < tiles; ++t)
      weights[t] = tiles_ + (tile + static_cast<std::size_t>(t)) * tile_bytes_ + begin * kTileBytes;
    // The next tiles lie behind these, both of which a step reads.
    const std::size_t share = tiles * kTileBytes / pairs / kLineBytes * kLineBytes;
    Registers::add(weights, lines, bytes, behind - begin,
                   weights[0] + tiles * tile_bytes_ + pair * share * (behind - begin), share);
    if (behind < end) {
      LastStep last[tiles];
      for (int t = 0; t < tiles; ++t) {
        last[t].read(tiles_ + (tile + static_cast<std::size_t>(t)) * tile_bytes_, columns_);
        last_weights[t] = last[t].lines;
      }
      Registers::add(last_weights, last_lines, bytes, 1, last_weights[0], 0);
    }
    Registers::each(sums, kTileSums, [](auto at, float* to) TENSOR_OPS_INLINE_LAMBDA {
      tile_store<at>(to, kLineBytes);
    });
  }

  const unsigned char* tiles_;
  std::size_t tile_bytes_, num_tiles_, columns_;
  const TermRows& x_;
  std::size_t column_groups_;
  float* sums_;
};

template <std::size_t terms>
void multiply_tiles_of_terms(const unsigned char* tiles, std::size_t tile_bytes,
                             std::size_t num_tiles, std::size_t columns,
                             const unsigned char* prepared, std::size_t, std::size_t tokens,
                             float* sums, float* out, std::size_t out_stride) {
  constexpr std::size_t together = ManyTerms<terms>::kTogether;
  const TermRows x{prepared, column_steps(columns), tokens * terms};
  for (std::size_t t = 0; t < num_tiles; t += together) {
    const std::size_t some = num_tiles - t < together ? num_tiles - t : together;
    ManyTerms<terms>(tiles + t * tile_bytes, tile_bytes, some, columns, x, sums)
        .multiply(out + t * kTileRows, out_stride);
  }
}

template <std::size_t terms>
constexpr ProductKernel tile_bfloat16_product{term_bytes<terms>,
                                              prepare_terms<terms>,
                                              multiply_terms<terms>,
                                              multiply_tiles_of_terms<terms>,
                                              nullptr,
                                              0,
                                              false};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
