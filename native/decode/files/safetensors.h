// A strict reader of safetensors files, for files that nobody has checked.
//
// A file is the length of a JSON header as a uint64, the header, and the data of the tensors, one
// behind the other: https://github.com/huggingface/safetensors#format
#pragma once

#include <map>
#include <string>
#include <vector>

#include "decode/files/mapped_file.h"

namespace tensor_ops::decode {

struct StoredTensor {
  std::string dtype;
  std::vector<std::size_t> shape;
  const unsigned char* first;  // in the mapped file
  std::size_t bytes;
};

struct Safetensors {
  std::map<std::string, std::string> metadata;
  std::map<std::string, StoredTensor> tensors;
};

// Throws ValueError for a header that is not valid, and for data that are not exactly those of the
// tensors.
Safetensors read_safetensors(const MappedFile& file);

}  // namespace tensor_ops::decode
