// How 16 rows of a file become a tile. Words of the rows are transposed, so that a vector has a
// word of each of its rows, and what a format does to integers is done to those of all rows.
#pragma once

#include "decode/products/dot.h"
#include "decode/products/unpack.h"
#include "kernels/elements.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// Rows of a vector of words, and the words of a row that are loaded at a time.
constexpr std::size_t kVectorRows = kLanes<std::uint32_t>, kLoadedWords = 4;

// Some bytes of each of 16 rows.
struct RowBytes {
  const unsigned char* first;
  std::size_t stride;  // from one row to the next
  TENSOR_OPS_INLINE const unsigned char* operator[](std::size_t row) const {
    return first + row * stride;
  }
};

// Reads `bytes` bytes of each row at a time, and zeros for rows past the end.
template <std::size_t bytes>
class RowReader {
 public:
  TENSOR_OPS_INLINE RowReader(const unsigned char* first, std::size_t rows, std::size_t row_bytes)
      : first_(first),
        rows_(rows),
        row_bytes_(row_bytes),
        stride_(rows == kTileRows ? row_bytes : bytes) {
    if (rows < kTileRows) __builtin_memset(few_, 0, sizeof(few_));
  }
  // From an offset on. Prefetches as many bytes of the next tile, whose rows follow, to where they
  // stay until they are used: there are more of them than fit the first cache.
  TENSOR_OPS_INLINE RowBytes at(std::size_t offset) {
    const unsigned char* const at = first_ + offset;
    for (std::size_t r = 0; r < kTileRows; ++r)
      for (std::size_t i = 0; i < bytes; i += kLineBytes)
        __builtin_prefetch(at + (kTileRows + r) * row_bytes_ + i, 0, 2);
    if (rows_ == kTileRows) return {at, stride_};
    for (std::size_t r = 0; r < rows_; ++r) __builtin_memcpy(few_[r], at + r * row_bytes_, bytes);
    return {few_[0], stride_};
  }

 private:
  const unsigned char* const first_;
  const std::size_t rows_, row_bytes_, stride_;
  unsigned char few_[kTileRows][bytes];
};

// 16 bytes of each fourth of the rows of a vector.
TENSOR_OPS_INLINE Words load_fourths(RowBytes rows, std::size_t first, std::size_t offset) {
  using Sixteen = VectorOf<std::uint32_t, 16>::Type;
  const auto row = [&](std::size_t i) TENSOR_OPS_INLINE_LAMBDA {
    return load_vector<Sixteen>(rows[first + 4 * i] + offset);
  };
#if defined(__AVX512F__)
  __m512i all = _mm512_castsi128_si512(bit_cast<__m128i>(row(0)));
  all = _mm512_inserti32x4(all, bit_cast<__m128i>(row(1)), 1);
  all = _mm512_inserti32x4(all, bit_cast<__m128i>(row(2)), 2);
  return bit_cast<Words>(_mm512_inserti32x4(all, bit_cast<__m128i>(row(3)), 3));
#elif defined(__AVX2__)
  return bit_cast<Words>(_mm256_set_m128i(bit_cast<__m128i>(row(1)), bit_cast<__m128i>(row(0))));
#else
  return row(0);
#endif
}

// The first two words, or the last two, of each 16 bytes of a and b, interleaved: a[0], b[0], a[1],
// b[1]; and the same of pairs of words.
#if defined(__x86_64__)
TENSOR_OPS_INLINE Words first_words(Words a, Words b) {
  return bits(TENSOR_OPS_X86(unpacklo_ps)(bit_cast<Floats>(a), bit_cast<Floats>(b)));
}
TENSOR_OPS_INLINE Words last_words(Words a, Words b) {
  return bits(TENSOR_OPS_X86(unpackhi_ps)(bit_cast<Floats>(a), bit_cast<Floats>(b)));
}
TENSOR_OPS_INLINE Words first_pairs(Words a, Words b) {
  return bit_cast<Words>(TENSOR_OPS_X86(unpacklo_pd)(bit_cast<Doubles>(a), bit_cast<Doubles>(b)));
}
TENSOR_OPS_INLINE Words last_pairs(Words a, Words b) {
  return bit_cast<Words>(TENSOR_OPS_X86(unpackhi_pd)(bit_cast<Doubles>(a), bit_cast<Doubles>(b)));
}
#else
TENSOR_OPS_INLINE Words first_words(Words a, Words b) {
  return __builtin_shufflevector(a, b, 0, 4, 1, 5);
}
TENSOR_OPS_INLINE Words last_words(Words a, Words b) {
  return __builtin_shufflevector(a, b, 2, 6, 3, 7);
}
TENSOR_OPS_INLINE Words first_pairs(Words a, Words b) {
  return __builtin_shufflevector(a, b, 0, 1, 4, 5);
}
TENSOR_OPS_INLINE Words last_pairs(Words a, Words b) {
  return __builtin_shufflevector(a, b, 2, 3, 6, 7);
}
#endif

// Transposes the words of four rows, lane by lane: words[i] has word i of each row.
TENSOR_OPS_INLINE void transpose_fours(const Words (&row)[kLoadedWords], Words* words) {
  const Words first_ab = first_words(row[0], row[1]), last_ab = last_words(row[0], row[1]),
              first_cd = first_words(row[2], row[3]), last_cd = last_words(row[2], row[3]);
  words[0] = first_pairs(first_ab, first_cd);
  words[1] = last_pairs(first_ab, first_cd);
  words[2] = first_pairs(last_ab, last_cd);
  words[3] = last_pairs(last_ab, last_cd);
}

// Four words of each row of a part, from an offset on: row r of the part is lane r.
TENSOR_OPS_INLINE void load_words(RowBytes rows, std::size_t part, std::size_t offset,
                                  Words* words) {
  Words row[kLoadedWords];
  for (std::size_t j = 0; j < kLoadedWords; ++j)
    row[j] = load_fourths(rows, part * kVectorRows + j, offset);
  transpose_fours(row, words);
}

// All words of a line of each row of a part: store(w, words) is given four, from word w on.
#if defined(__AVX512F__)
// A line is loaded once: rows of numbers are often so many bytes apart that their lines share one
// set of the first cache, which has no room for all of them.
template <class Store>
TENSOR_OPS_INLINE void load_lines(RowBytes rows, std::size_t, Store store) {
  constexpr int kEven = 0x88, kOdd = 0xDD;  // quarters of two vectors
  Words quarters[4][kLoadedWords];
  for (std::size_t j = 0; j < kLoadedWords; ++j) {
    const auto line = [&](std::size_t i) TENSOR_OPS_INLINE_LAMBDA {
      return bit_cast<__m512i>(load_vector<Words>(rows[j + 4 * i]));
    };
    const __m512i a = line(0), b = line(1), c = line(2), d = line(3);
    const __m512i even_ab = _mm512_shuffle_i32x4(a, b, kEven),
                  even_cd = _mm512_shuffle_i32x4(c, d, kEven),
                  odd_ab = _mm512_shuffle_i32x4(a, b, kOdd),
                  odd_cd = _mm512_shuffle_i32x4(c, d, kOdd);
    quarters[0][j] = bit_cast<Words>(_mm512_shuffle_i32x4(even_ab, even_cd, kEven));
    quarters[1][j] = bit_cast<Words>(_mm512_shuffle_i32x4(odd_ab, odd_cd, kEven));
    quarters[2][j] = bit_cast<Words>(_mm512_shuffle_i32x4(even_ab, even_cd, kOdd));
    quarters[3][j] = bit_cast<Words>(_mm512_shuffle_i32x4(odd_ab, odd_cd, kOdd));
  }
  for (std::size_t i = 0; i < 4; ++i) {
    Words words[kLoadedWords];
    transpose_fours(quarters[i], words);
    store(i * kLoadedWords, words);
  }
}
#else
template <class Store>
TENSOR_OPS_INLINE void load_lines(RowBytes rows, std::size_t part, Store store) {
  for (std::size_t w = 0; w < kLineBytes / 4; w += kLoadedWords) {
    Words words[kLoadedWords];
    load_words(rows, part, 4 * w, words);
    store(w, words);
  }
}
#endif

// Stores the numbers of two bytes that the lanes are.
TENSOR_OPS_INLINE void store_halves(unsigned char* to, Words halves) {
  store_vector(to, __builtin_convertvector(halves, Halves));
}

// Numbers of `size` bytes, column after column; a row's `together` columns are neighbours.
template <std::size_t size, std::size_t together = 1>
void pack_numbers(const unsigned char* first, std::size_t rows, std::size_t columns,
                  unsigned char* tile) {
  constexpr std::size_t step = kLineBytes / size;  // columns
  const std::size_t whole = columns / step * step;
  RowReader<kLineBytes> reader(first, rows, columns * size);
  for (std::size_t k = 0; k < whole; k += step) {
    const RowBytes at = reader.at(k * size);
    for (std::size_t part = 0; part < kParts; ++part)
      load_lines(at, part, [&](std::size_t w, const Words* words) TENSOR_OPS_INLINE_LAMBDA {
        for (std::size_t i = 0; i < kLoadedWords; ++i) {
          unsigned char* const line = tile + k * kTileRows * size + (w + i) * kLineBytes;
          if constexpr (size * together == 4) {
            store_vector(line + part * kVectorBytes, words[i]);
          } else {  // a word has two columns, which become two half lines
            store_halves(line + part * kVectorBytes / 2, half_of(words[i], 0));
            store_halves(line + (kLineBytes + part * kVectorBytes) / 2, half_of(words[i], 1));
          }
        }
      });
  }
  constexpr std::size_t word = size * together;
  __builtin_memset(tile + whole * kTileRows * size, 0,
                   number_tile_bytes<size>(columns) - whole * kTileRows * size);
  for (std::size_t k = whole; k < columns; ++k)
    for (std::size_t r = 0; r < rows; ++r)
      __builtin_memcpy(tile + (k / together * kTileRows + r) * word + k % together * size,
                       first + (r * columns + k) * size, size);
}

// A block of each row of a part.
template <class Form>
class RowsBlock {
 public:
  using Word = Words;
  TENSOR_OPS_INLINE RowsBlock(RowBytes rows, std::size_t part) : rows_(rows), part_(part) {
    for (std::size_t w = 0; w < kWords; w += kLoadedWords) {
      const std::size_t first = w + kLoadedWords <= kWords ? w : kWords - kLoadedWords;
      load_words(rows, part, Form::kWordsAt + 4 * first, words_ + first);
    }
  }
  TENSOR_OPS_INLINE Word word(std::size_t offset) const {
    return words_[(offset - Form::kWordsAt) / 4];
  }
  // Numbers of some bytes at an offset.
  template <std::size_t size>
  TENSOR_OPS_INLINE void copy(std::size_t offset, unsigned char* to) const {
    for (std::size_t r = 0; r < kVectorRows; ++r)
      __builtin_memcpy(to + size * r, rows_[part_ * kVectorRows + r] + offset, size);
  }

 private:
  static constexpr std::size_t kWords = (Form::kBytes - Form::kWordsAt) / 4;
  const RowBytes rows_;
  const std::size_t part_;
  Words words_[kWords];
};

// The head of a block of a tile, as far as it belongs to a part: half lines, or fourths of lines.
template <class Block>
class HeadLines {
 public:
  TENSOR_OPS_INLINE HeadLines(const Block& block, unsigned char* first, std::size_t part)
      : block_(block), first_(first), part_(part) {}
  TENSOR_OPS_INLINE void set(std::size_t index, Words halves) const {
    store_halves(half_line(index), halves);
  }
  TENSOR_OPS_INLINE void copy(std::size_t index, std::size_t offset) const {
    block_.template copy<2>(offset, half_line(index));
  }
  TENSOR_OPS_INLINE void set_byte(std::size_t index, Words bytes) const {
    using Bytes = typename VectorOf<unsigned char, kVectorBytes / 4>::Type;
    store_vector(fourth(index), __builtin_convertvector(bytes, Bytes));
  }
  TENSOR_OPS_INLINE void copy_byte(std::size_t index, std::size_t offset) const {
    block_.template copy<1>(offset, fourth(index));
  }
  // A line of float32: the half-precision numbers at an offset, times a power of two.
  TENSOR_OPS_INLINE void set_unit(std::size_t at, std::size_t offset, float factor) const {
    unsigned char halves[kVectorBytes / 2];
    block_.template copy<2>(offset, halves);
    store_vector(first_ + at + part_ * kVectorBytes,
                 Float16::widen(load_vector<Halves>(halves)) * factor);
  }

 private:
  TENSOR_OPS_INLINE unsigned char* half_line(std::size_t index) const {
    return first_ + (index * kLineBytes + part_ * kVectorBytes) / 2;
  }
  TENSOR_OPS_INLINE unsigned char* fourth(std::size_t index) const {
    return first_ + (index * kLineBytes + part_ * kVectorBytes) / 4;
  }

  const Block& block_;
  unsigned char* const first_;
  const std::size_t part_;
};

// Packs some bits of integers of 32 columns, from bit `first` on, as TileBlock::high() reads them.
template <std::size_t bits, std::size_t first>
TENSOR_OPS_INLINE void pack_bits(const Words (&q)[kFours], unsigned char* lines) {
  constexpr std::size_t together = 8 / bits;  // words to a line
  constexpr std::uint32_t mask = bits == 1 ? kLowBits : kLowTwoBits;
  for (std::size_t i = 0; i < kFours / together; ++i) {
    Words packed = {};
    for (std::size_t t = 0; t < together; ++t)
      packed |= (q[i * together + t] >> first & mask) << static_cast<int>(t * bits);
    store_vector(lines + i * kLineBytes, packed);
  }
}

// Packs integers of `bits` bits of 32 columns into a part of lines.
template <std::size_t bits>
TENSOR_OPS_INLINE void pack_words(const Words (&q)[kFours], unsigned char* lines) {
  if constexpr (bits == 8) {
    for (std::size_t i = 0; i < kFours; ++i) store_vector(lines + i * kLineBytes, q[i]);
  } else if constexpr (bits >= 4) {
    // The lower four bits, as TileBlock::nibbles() reads them.
    for (std::size_t i = 0; i < 4; ++i)
      store_vector(lines + i * kLineBytes, (q[i] & kLowHalves) | (q[4 + i] & kLowHalves) << 4);
    if constexpr (bits > 4) pack_bits<bits - 4, 4>(q, lines + 4 * kLineBytes);
  } else {
    pack_bits<2, 0>(q, lines);
    if constexpr (bits == 3) pack_bits<1, 2>(q, lines + 2 * kLineBytes);
  }
}

// Packs rows of blocks, as Form describes them: kBytes and kColumns of a block in a file, kWordsAt
// where the words begin that unpack(block, b, q) reads, which gives the integers of 32 columns, of
// kBits bits. set_head(block, lines) sets the rest of a block.
template <class Form>
void pack_blocks(const unsigned char* first, std::size_t rows, std::size_t columns,
                 unsigned char* tile) {
  using Tile = typename Form::Tile;
  using Block = RowsBlock<Form>;
  constexpr std::size_t together = Form::kColumns / kBlockColumns;
  const std::size_t blocks = columns / kBlockColumns;
  RowReader<Form::kBytes> reader(first, rows, blocks / together * Form::kBytes);
  for (std::size_t b = 0; b < blocks; b += together) {
    const RowBytes at = reader.at(b / together * Form::kBytes);
    for (std::size_t part = 0; part < kParts; ++part) {
      const Block block(at, part);
      for (std::size_t i = 0; i < together; ++i) {
        Words q[kFours];
        Form::unpack(block, i, q);
        pack_words<Form::kBits>(q, tile + Tile::lines_at(b + i) + part * kVectorBytes);
      }
      Form::set_head(block, HeadLines<Block>(block, tile + Tile::halves_at(b), part));
    }
  }
  // The parts of a line that belong to blocks behind the last one.
  if (const std::size_t present = blocks % Tile::kShared; present != 0)
    __builtin_memset(tile + Tile::halves_at(blocks), 0,
                     (Tile::kShared - present) * Tile::kHalfBytes);
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
