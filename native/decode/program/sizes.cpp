#include "decode/program/sizes.h"

namespace tensor_ops::decode {

void refuse_size(const std::string& of_what, const std::vector<std::size_t>& factors) {
  std::string product;
  for (std::size_t factor : factors) product += text(product.empty() ? ": " : " x ", factor);
  throw SizeError(text(of_what, ": its size in bytes is more than any memory", product));
}

}  // namespace tensor_ops::decode
