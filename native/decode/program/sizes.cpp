#include "decode/program/sizes.h"

namespace tensor_ops::decode {

void refuse_size(const std::string& of_what, const std::vector<std::size_t>& factors) {
  const std::string product = joined(factors, [](std::size_t factor) { return factor; }, " x ");
  throw SizeError(text(of_what, ": its size in bytes is more than any memory",
                       product.empty() ? "" : ": ", product));
}

}  // namespace tensor_ops::decode
