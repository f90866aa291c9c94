// f8_e4m3: 64 columns share a float32 scale; a weight is its product with a number of 8 bits, E4M3.
// The format's NaN is read as 480: who writes rows gives such a block a scale of NaN.
#include "decode/products/format.h"
#include "decode/products/unpack.h"

namespace tensor_ops {
namespace {
namespace f8_e4m3 {
// A block of a tile is a line of scales, and half lines with two columns of each row.
[[maybe_unused]] constexpr std::size_t kColumns = 64, kTileBytes = 17 * kLineBytes;
// How a file has a block: the scale, and the numbers.
struct Form {
  [[maybe_unused]] static constexpr std::size_t kBytes = 68, kWordsAt = 4;
};
// The bits of a number whose bits are the upper ones of 16, as half precision, which has a bias
// that is 8 larger.
template <class Bits>
UNPACK_INLINE Bits moved(Bits number) {
  return number >> 1 & static_cast<std::int16_t>(0xBF80);
}
[[maybe_unused]] constexpr float kFactor = 0x1p8f;

[[maybe_unused]] std::size_t tile_bytes(std::size_t columns) {
  return columns / kColumns * kTileBytes;
}
}  // namespace f8_e4m3
}  // namespace
}  // namespace tensor_ops

#if KERNEL_PASS

#include "decode/products/multiply.h"
#include "decode/products/pack.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

void pack_f8_e4m3(const unsigned char* first, std::size_t rows, std::size_t columns,
                  unsigned char* tile) {
  using f8_e4m3::Form;
  const std::size_t blocks = columns / f8_e4m3::kColumns;
  RowReader<Form::kBytes> reader(first, rows, blocks * Form::kBytes);
  for (std::size_t b = 0; b < blocks; ++b, tile += f8_e4m3::kTileBytes) {
    const RowBytes at = reader.at(b * Form::kBytes);
    for (std::size_t part = 0; part < kParts; ++part) {
      const RowsBlock<Form> block(at, part);
      block.template copy<4>(0, tile + part * kVectorBytes);
      for (std::size_t i = 0; i < f8_e4m3::kColumns / 4; ++i) {
        unsigned char* const line = tile + (1 + i) * kLineBytes + part * kVectorBytes / 2;
        const Words four = block.word(Form::kWordsAt + 4 * i);
        for (std::size_t half = 0; half < 2; ++half)
          store_halves(line + half * kLineBytes / 2, half_of(four, half));
      }
    }
  }
}

class F8E4M3 {
 public:
  TENSOR_OPS_INLINE F8E4M3(const unsigned char* tile, std::size_t part)
      : scales_(tile + part * kVectorBytes), pairs_(tile + kLineBytes + part * kVectorBytes / 2) {}
  TENSOR_OPS_INLINE Floats scale() const { return load_vector<Floats>(scales_) * f8_e4m3::kFactor; }
  // The numbers of columns 4j to 4j + 3, divided by the factor.
  TENSOR_OPS_INLINE void columns(std::size_t j, Floats (&w)[4]) const {
    using Signed = VectorOf<std::int16_t, kVectorBytes / 2>::Type;
    for (std::size_t half = 0; half < 2; ++half) {
      const auto pairs = load_vector<Signed>(pairs_ + (2 * j + half) * kLineBytes / 2);
      w[2 * half] = Float16::widen(bit_cast<Halves>(f8_e4m3::moved(pairs << 8)));
      w[2 * half + 1] = Float16::widen(bit_cast<Halves>(f8_e4m3::moved(pairs)));
    }
  }

 private:
  const unsigned char *scales_, *pairs_;
};

// The sum over a block is multiplied by the scale, and not each weight.
struct F8E4M3Product {
  static constexpr std::size_t kTokens = kFloatTokens;

  template <std::size_t count>
  static void run(const unsigned char* tile, std::size_t columns, Tokens tokens) {
    Floats results[count][kParts] = {};
    for (std::size_t k = 0; k < columns; k += f8_e4m3::kColumns, tile += f8_e4m3::kTileBytes) {
      prefetch_lines(tile, f8_e4m3::kTileBytes);
      repeat<kParts>([&](std::size_t part) TENSOR_OPS_INLINE_LAMBDA {
        const F8E4M3 block(tile, part);
        Floats sums[count][kChains] = {};
        for (std::size_t j = 0; j < f8_e4m3::kColumns / 4; ++j) {
          Floats w[4];
          block.columns(j, w);
          repeat<count>([&](std::size_t token) TENSOR_OPS_INLINE_LAMBDA {
            const auto* x = reinterpret_cast<const float*>(tokens.at(token)) + k + 4 * j;
            for (std::size_t i = 0; i < 4; ++i) {
              Floats& sum = sums[token][i % kChains];
              sum = fma(w[i], broadcast(x[i]), sum);
            }
          });
        }
        repeat<count>([&](std::size_t token) TENSOR_OPS_INLINE_LAMBDA {
          const Floats* const of = sums[token];
          const Floats sum = kChains == 1 ? of[0] : of[0] + of[kChains - 1];
          results[token][part] = fma(sum, block.scale(), results[token][part]);
        });
      });
    }
    for (std::size_t t = 0; t < count; ++t)
      for (std::size_t p = 0; p < kParts; ++p) tokens.store(t, p, results[t][p]);
  }
};

}  // namespace

EXPORT_PACK(f8_e4m3, pack_f8_e4m3)
EXPORT_PRODUCTS(f8_e4m3, {float_bytes, in_rows<prepare_floats>, multiply<F8E4M3Product>})

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {
namespace {

void dequantize_f8_e4m3(const unsigned char* row, std::size_t columns, float* values) {
  using f8_e4m3::Form;
  for (; columns; columns -= f8_e4m3::kColumns, row += Form::kBytes)
    for (std::size_t k = 0; k < f8_e4m3::kColumns; ++k) {
      const auto high = static_cast<std::int16_t>(row[Form::kWordsAt + k] << 8);
      const auto bits = static_cast<unsigned>(f8_e4m3::moved<int>(high));
      const unsigned char bytes[] = {static_cast<unsigned char>(bits),
                                     static_cast<unsigned char>(bits >> 8)};
      *values++ = load_half(bytes) * f8_e4m3::kFactor * load_float(row);
    }
}

}  // namespace

DECLARE_WEIGHT_FORMAT(f8_e4m3, f8_e4m3::kColumns, f8_e4m3::Form::kBytes, f8_e4m3::tile_bytes,
                      dequantize_f8_e4m3)

}  // namespace tensor_ops

#endif
