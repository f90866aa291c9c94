// Sums and products of sizes in bytes, which are refused where no memory is so large.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "declaration/errors.h"

namespace tensor_ops::decode {

// A size in bytes that is more than any memory.
struct SizeError : ValueError {
  using ValueError::ValueError;
};

// Throws SizeError. The product of the factors is the size, where they are given.
[[noreturn]] inline void refuse_size(const std::string& of_what,
                                     const std::vector<std::size_t>& factors = {}) {
  const std::string product = joined(factors, [](std::size_t factor) { return factor; }, " x ");
  throw SizeError(text(of_what, ": its size in bytes is more than any memory",
                       product.empty() ? "" : ": ", product));
}

// a * b * ...; throws SizeError where that is more bytes than memory can be.
template <class... Sizes>
std::size_t size_product(const std::string& of_what, Sizes... sizes) {
  constexpr std::size_t kMost = std::size_t{1} << (sizeof(std::size_t) == 8 ? 48 : 30);
  std::size_t product = 1;
  const bool overflows = (__builtin_mul_overflow(product, sizes, &product) || ...);
  if (overflows || product > kMost) refuse_size(of_what, {static_cast<std::size_t>(sizes)...});
  return product;
}

// Adds to a total; throws SizeError where that overflows.
inline void add_size(const char* of_what, std::size_t& total, std::size_t bytes) {
  if (__builtin_add_overflow(total, bytes, &total)) refuse_size(of_what);
}

}  // namespace tensor_ops::decode
