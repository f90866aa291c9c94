// The values of the rows of a file.
#pragma once

#include <cstring>

#include "decode/products/unpack.h"

namespace tensor_ops {

// Enters a format of static storage duration into weight_formats().
struct WeightFormatRegistration {
  explicit WeightFormatRegistration(const WeightFormat& format);
};

inline float load_float(const unsigned char* from) {
  float value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

inline float load_bfloat16(const unsigned char* from) {
  const std::uint32_t bits = std::uint32_t{from[1]} << 24 | std::uint32_t{from[0]} << 16;
  return load_float(reinterpret_cast<const unsigned char*>(&bits));
}

inline float load_half(const unsigned char* from) {
  const std::uint32_t half = std::uint32_t{from[1]} << 8 | from[0];
  const std::uint32_t magnitude = half & 0x7FFF, sign = (half & 0x8000) << 16;
  const bool finite = magnitude < 0x7C00;
  const std::uint32_t bits = sign | magnitude << 13 | (finite ? 0 : 0x7F800000);
  // The bias of the exponent is 112 less than float32's. The product is exact.
  return load_float(reinterpret_cast<const unsigned char*>(&bits)) * (finite ? 0x1p112f : 1.0f);
}

// A row of numbers of `size` bytes.
template <std::size_t size, float (*load)(const unsigned char*)>
void dequantize_numbers(const unsigned char* row, std::size_t columns, float* values) {
  for (std::size_t k = 0; k < columns; ++k) values[k] = load(row + k * size);
}

// A block of one row.
class RowBlock {
 public:
  using Word = std::uint32_t;
  explicit RowBlock(const unsigned char* first) : first_(first) {}
  Word word(std::size_t offset) const {
    Word word;
    std::memcpy(&word, first_ + offset, sizeof word);
    return word;
  }

 private:
  const unsigned char* first_;
};

// The integers of 32 columns of a block.
template <class Form>
class Integers {
 public:
  explicit Integers(const unsigned char* block, std::size_t which = 0) {
    Form::unpack(RowBlock(block), which, four_);
  }
  int operator[](std::size_t column) const {
    return static_cast<int>(byte_of(four_[column / 4], column % 4));
  }

 private:
  std::uint32_t four_[kFours];
};

// Rows of q4_K and q5_K.
template <class Form>
void dequantize_super_blocks(const unsigned char* row, std::size_t columns, float* values) {
  for (; columns; columns -= kSuperColumns, row += Form::kBytes) {
    const float d = load_half(row), e = load_half(row + 2);
    const ScalesAndMinimums<std::uint32_t> six{RowBlock(row)};
    for (std::size_t b = 0; b < kSuperColumns / kBlockColumns; ++b) {
      const Integers<Form> q(row, b);
      const auto s = static_cast<float>(byte_of(six.scales[b / 4], b % 4)),
                 t = static_cast<float>(byte_of(six.minimums[b / 4], b % 4));
      for (std::size_t k = 0; k < kBlockColumns; ++k)
        *values++ = d * s * static_cast<float>(q[k]) - e * t;
    }
  }
}

}  // namespace tensor_ops
