// Memory that is divided into pieces, each of them aligned: the plan of an executor asks for their
// size, and its kernels for pointers to them.
#pragma once

#include <cstddef>

#define DECODE_INLINE inline __attribute__((always_inline))

namespace tensor_ops::decode {

// Rounds up to whole cache lines, which are as long as the longest vectors. Inlined, so that no
// code of one instruction-set level can be linked into another's.
__attribute__((always_inline)) constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

template <class T>
struct Piece {
  std::size_t offset, count;  // in bytes, and of elements

  DECODE_INLINE T* in(unsigned char* memory) const { return reinterpret_cast<T*>(memory + offset); }
};

// Places pieces one after another, each of them aligned.
class Pieces {
 public:
  static constexpr std::size_t kTooLarge = ~std::size_t{0};

  // A piece of a * b * ... elements.
  template <class T, class... Counts>
  DECODE_INLINE Piece<T> add(Counts... counts) {
    constexpr std::size_t kMost = kTooLarge / 4;  // so that neither a sum nor aligned() overflows
    const std::size_t offset = bytes_;
    std::size_t count = 1, bytes = 0;
    const bool overflows = (__builtin_mul_overflow(count, counts, &count) || ...) ||
                           __builtin_mul_overflow(count, sizeof(T), &bytes);
    bytes_ = overflows || bytes > kMost || offset > kMost ? kTooLarge : offset + aligned(bytes);
    return {offset, count};
  }

  // The size of all pieces, or kTooLarge where that is more than any memory.
  DECODE_INLINE std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

}  // namespace tensor_ops::decode
