// Formats whose weights are codes of 3 or 4 bits, each of which stands for an integer from -128 to
// 127. A code is looked up when it is multiplied.
//
// formats/ has each with a Form, which unpacks codes; Form::kValues is what these stand for.
#pragma once

#include "decode/products/format.h"
#include "decode/products/unpack.h"

namespace tensor_ops {
namespace {

using CodeValues = signed char[16];

// Twice the numbers of FP4 (E2M1).
[[maybe_unused]] constexpr CodeValues kFp4{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
// Of iq4_nl and iq4_xs.
[[maybe_unused]] constexpr CodeValues kNonlinear{-127, -104, -83, -65, -49, -35, -22, -10,
                                                 1,    13,   25,  38,  53,  69,  89,  113};

// The codes of 32 columns that begin at an offset: each `columns` of them are in half as many
// bytes, the first half of them in the low halves.
template <std::size_t columns, class Block>
UNPACK_INLINE void unpack_nibbles(const Block& block, std::size_t offset, typename Block::Word* q) {
  constexpr std::size_t words = columns / 8;
  for (std::size_t i = 0; i < kFours; ++i) {
    const std::size_t word = i / (2 * words) * words + i % words;
    q[i] = block.word(offset + 4 * word) >> static_cast<int>(i / words % 2 * 4) & kLowHalves;
  }
}

// Formats that layouts/ multiplies: 256 columns share a number, and 32 of them an integer from -128
// to 127, or 16 of them where codes have 3 bits. Form has, besides what pack_blocks() needs,
//
//   kNumberAt               where in a block the half-precision number is
//   kFactor                 a power of two that multiplies it
//   integers(block, words)  the integers, in bytes
template <std::size_t bits>
using CodeSuperTile = CodeTile<bits, 8, bits == 4 ? 1 : 2, true>;

template <class Form, class Block, class Lines>
UNPACK_INLINE void set_code_head(const Block& block, const Lines& lines) {
  using Tile = typename Form::Tile;
  constexpr std::size_t count = Tile::kBlocks * Tile::kScales;
  typename Block::Word words[count / 4];
  Form::integers(block, words);
  for (std::size_t i = 0; i < count; ++i) lines.set_byte(i, byte_of(words[i / 4], i % 4));
  lines.set_unit(Tile::unit_at(0) - Tile::halves_at(0), Form::kNumberAt, Form::kFactor);
}

}  // namespace
}  // namespace tensor_ops

#if KERNEL_PASS

#include "decode/products/blocks.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// A line with 128 more than the integers that codes stand for, again and again.
struct CodeTable {
  alignas(kLineBytes) unsigned char bytes[kLineBytes];
  constexpr explicit CodeTable(const CodeValues& values) : bytes{} {
    for (std::size_t i = 0; i < kLineBytes; ++i)
      bytes[i] = static_cast<unsigned char>(values[i % 16] + 128);
  }
};
[[maybe_unused]] constexpr CodeTable kFp4Table(kFp4), kNonlinearTable(kNonlinear);

// table[code] for each code, in a byte. The table, of a line, is read from memory as masks are.
TENSOR_OPS_INLINE Words look_up(const unsigned char* table, Words codes) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  Words result;
  asm("vmovdqa %2, %0\n\tvpshufb %1, %0, %0"
      : "=&x"(result)
      : "x"(codes), "m"(*reinterpret_cast<const Words*>(table)));
  return result;
#elif defined(__x86_64__)
  return bit_cast<Words>(TENSOR_OPS_X86(shuffle_epi8)(load_vector<Vector<long long>>(table),
                                                      bit_cast<Vector<long long>>(codes)));
#elif defined(__aarch64__)
  return bit_cast<Words>(vqtbl1q_u8(vld1q_u8(table), bit_cast<uint8x16_t>(codes)));
#else
  auto bytes = bit_cast<Vector<unsigned char>>(codes);
  for (std::size_t i = 0; i < kVectorBytes; ++i) bytes[i] = table[bytes[i]];
  return bit_cast<Words>(bytes);
#endif
}

// As many bytes as a vector has rows, with or without signs.
template <class Byte>
TENSOR_OPS_INLINE Ints widened_bytes(const unsigned char* from) {
  using Bytes = typename VectorOf<Byte, kVectorBytes / 4>::Type;
#if defined(__AVX2__)
  const auto bytes = load_vector<Bytes>(from);
#if defined(__AVX512F__)
  const auto all = bit_cast<__m128i>(bytes);
#else
  const __m128i all = _mm_cvtsi64_si128(bit_cast<long long>(bytes));
#endif
  if constexpr (std::is_signed_v<Byte>)
    return bit_cast<Ints>(TENSOR_OPS_X86(cvtepi8_epi32)(all));
  else
    return bit_cast<Ints>(TENSOR_OPS_X86(cvtepu8_epi32)(all));
#else
  return __builtin_convertvector(load_vector<Bytes>(from), Ints);
#endif
}

// The same in 16 bits, without signs.
TENSOR_OPS_INLINE Halves widened_to_halves(const unsigned char* from) {
#if defined(__AVX512F__)
  return bit_cast<Halves>(_mm256_cvtepu8_epi16(load_vector<__m128i>(from)));
#elif defined(__AVX2__)
  return bit_cast<Halves>(_mm_cvtepu8_epi16(_mm_cvtsi64_si128(load_vector<long long>(from))));
#else
  using Bytes = typename VectorOf<unsigned char, kVectorBytes / 4>::Type;
  return __builtin_convertvector(load_vector<Bytes>(from), Halves);
#endif
}

// A block of a tile of codes. A format derives from it, with scale[] and word().
template <class Tile_>
class CodeBlock : public TileBlock<Tile_> {
 public:
  using Tile = Tile_;
  static constexpr int kLargest = 255, kZero = 128;
  static constexpr std::size_t kScales = Tile::kScales;
  static constexpr bool kHasMinimum = false;

  TENSOR_OPS_INLINE CodeBlock(const unsigned char* tile, std::size_t block, std::size_t part)
      : TileBlock<Tile>(tile, block, part),
        head_(tile + Tile::head_at(block)),
        scales_(tile + Tile::halves_at(block) + part * kVectorBytes / 4),
        index_(block % Tile::kBlocks) {}
  static constexpr std::size_t place(std::size_t block) { return Tile::head_at(block); }
  TENSOR_OPS_INLINE void prefetch(Prefetching how = {}) const {
    prefetch_share<Tile>(head_, index_, how);
  }

 protected:
  // The bytes of a scale of the block.
  TENSOR_OPS_INLINE const unsigned char* scale_bytes(std::size_t scale) const {
    return scales_ + scale * kLineBytes / 4;
  }

 private:
  const unsigned char *head_, *scales_;
  std::size_t index_;
};

// Such a block of the formats that layouts/ multiplies.
template <std::size_t bits>
class CodeSuperBlock : public CodeBlock<CodeSuperTile<bits>> {
  using Base = CodeBlock<CodeSuperTile<bits>>;

 public:
  using Base::kScales;
  TENSOR_OPS_INLINE CodeSuperBlock(const unsigned char* tile, std::size_t block, std::size_t part)
      : Base(tile, block, part), table_(tile) {
    const auto unit = load_vector<Floats>(tile + Base::Tile::unit_at(block) + part * kVectorBytes);
    for (std::size_t s = 0; s < kScales; ++s)
      scale[s] =
          unit * __builtin_convertvector(widened_bytes<signed char>(this->scale_bytes(s)), Floats);
  }
  TENSOR_OPS_INLINE Words word(std::size_t j) const {
    if constexpr (bits == 4) return look_up(table_, this->template nibbles<true>(j));
    return look_up(table_, this->template high<2, 0>(0, j) | this->template high<1, 2>(2, j));
  }

  Floats scale[kScales];

 private:
  const unsigned char* table_;
};

#if PACKS_TILES

// Packs rows of a format that layouts/ multiplies.
template <class Form>
void pack_codes(const unsigned char* first, std::size_t rows, std::size_t columns,
                unsigned char* tile) {
  static constexpr CodeTable table(Form::kValues);
  __builtin_memcpy(tile, table.bytes, kLineBytes);
  pack_blocks<Form>(first, rows, columns, tile);
}

#endif

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {
namespace {

// Rows of codes. Form::scale(block, b, half) is that of columns 32 b + 16 half and the next ones.
template <class Form>
void dequantize_codes(const unsigned char* row, std::size_t columns, float* values) {
  constexpr std::size_t kHalf = kBlockColumns / 2;
  for (; columns; columns -= Form::kColumns, row += Form::kBytes)
    for (std::size_t b = 0; b < Form::kColumns / kBlockColumns; ++b) {
      const Integers<Form> codes(row, b);
      for (std::size_t half = 0; half < 2; ++half) {
        const float scale = Form::scale(row, b, half);
        for (std::size_t k = half * kHalf; k < (half + 1) * kHalf; ++k)
          *values++ = scale * static_cast<float>(Form::kValues[codes[k]]);
      }
    }
}

template <class Form>
struct CodeSuperForm : Form {
  static float scale(const unsigned char* block, std::size_t b, std::size_t half) {
    constexpr std::size_t scales = Form::Tile::kScales;
    std::uint32_t words[2 * scales];
    Form::integers(RowBlock(block), words);
    const std::size_t i = b * scales + half * (scales - 1);
    const auto integer = static_cast<signed char>(byte_of(words[i / 4], i % 4));
    return load_half(block + Form::kNumberAt) * Form::kFactor * static_cast<float>(integer);
  }
};

}  // namespace
}  // namespace tensor_ops

#endif

// The second half of the file of a format that a file of layouts/ multiplies.
#if KERNEL_PASS
#define CODE_SUPER_FORMAT(format, layout)                   \
  namespace tensor_ops::TENSOR_OPS_LEVEL {                  \
  EXPORT_PACK(format, pack_codes<tensor_ops::format::Form>) \
  }
#else
#define CODE_SUPER_FORMAT(format, layout)                                       \
  namespace tensor_ops {                                                        \
  DECLARE_FORMAT_OF_LAYOUT(format, layout, kSuperColumns, format::Form::kBytes, \
                           format::Form::Tile::bytes,                           \
                           dequantize_codes<CodeSuperForm<format::Form>>)       \
  }
#endif
