// A model in a folder that tensor-ops export has written. Its files are checked like any others.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "decode/files/mapped_file.h"
#include "decode/program/program.h"

namespace tensor_ops::decode {

struct ExportedModel {
  std::string name;            // of the file or folder that it was exported from
  std::string activations;     // empty where the export does not say
  std::string logits, tokens;  // outputs of the program
  std::vector<std::int32_t> end_tokens;
  std::int32_t start_token;
  Program program;
  std::shared_ptr<const MappedFile> weights;
  std::vector<TensorBytes> tensors;  // of the program, by index, in the mapped file
};

// The most tokens that a sequence can have, by the program's positions and pages.
std::size_t longest_sequence(const Limits& limits);

// The number of nodes with a cache. Each layer has one.
std::size_t num_layers(const Program& program);

// folder: UTF-8. Throws ValueError, with the path of the file, for whatever is wrong.
ExportedModel open_exported_model(const std::string& folder);

}  // namespace tensor_ops::decode
