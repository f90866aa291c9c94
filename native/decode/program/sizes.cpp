#include "decode/program/sizes.h"

#include "declaration/errors.h"

namespace tensor_ops::decode {

void refuse_size(const std::string& of_what) {
  throw ValueError(text(of_what, ": its size in bytes is more than any memory"));
}

}  // namespace tensor_ops::decode
