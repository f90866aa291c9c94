// What a kind of node declares about itself: its slots and attributes as data.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "decode/program/program.h"

namespace tensor_ops::decode {

// Columns, rows and lengths are named by a letter, which stands for the same number in all slots of
// a node; "2F" is twice F, and "" any number.
struct InputSlot {
  const char* name;
  const char* columns;
  bool is_optional = false;
  bool is_int32 = false;
};

struct OutputSlot {
  const char* columns;  // "1" where is_int32
  bool is_int32 = false;
};

enum class WeightForm {
  kVector,    // kept as float32
  kTable,     // a matrix, kept as float32, with a row for each position
  kRows,      // a matrix whose rows are looked up by token in the caller's memory
  kMatrices,  // one or more, one below the other, packed for products
  kBiases,    // one vector for each matrix, kept as one float32 vector
};

struct WeightSlot {
  const char* name;
  WeightForm form;
  const char* rows;  // of a vector: its length
  const char* columns;
  bool is_optional = false;
};

struct AttributeSlot {
  enum class Type { kNumber, kInteger, kChoice };
  const char* name;
  Type type;
  double least = std::numeric_limits<double>::lowest();
  std::vector<const char*> choices{};
};

struct NodeKind {
  const char* name;
  std::vector<InputSlot> inputs;
  OutputSlot output;
  std::vector<WeightSlot> weights{};
  std::vector<AttributeSlot> attributes{};
  bool selects = false;    // from the rows of tokens, those that are selected
  bool has_cache = false;  // named by the attribute `cache`
  bool samples = false;    // by the parameters of each slot
  // Throws ValueError for what the slots do not say; may be null.
  void (*check)(const Program&, const Node&) = nullptr;
};

inline AttributeSlot number(const char* name,
                            double least = std::numeric_limits<double>::lowest()) {
  return {name, AttributeSlot::Type::kNumber, least};
}
inline AttributeSlot integer(const char* name, double least) {
  return {name, AttributeSlot::Type::kInteger, least};
}
inline AttributeSlot choice(const char* name, std::vector<const char*> choices) {
  return {name, AttributeSlot::Type::kChoice, 0, std::move(choices)};
}

// By name; null where there is none.
const NodeKind* find_node_kind(const std::string& name);
std::string node_kind_names();

}  // namespace tensor_ops::decode
