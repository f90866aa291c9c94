// The declaration of a kind of node: its slots and attributes as data. The table of all kinds is
// node_kinds.cpp, which is written from the declarations in Python.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace tensor_ops::decode {

enum class Element { kFloat32, kInt32 };
enum class Need { kRequired, kOptional };

// Columns, rows and lengths are sizes: a sum of products such as "K", "2F", "HD+2GD" or "1". A
// letter stands for the same number in all of a node, P for limits.max_seq_length; the empty size
// is any number. tensor_ops_decode/kinds/sizes.py reads the same notation.
struct InputSlot {
  const char *name, *columns;
  Element element = Element::kFloat32;
  const char* below = "";  // of int32: its numbers must be stated to be below this size
};

struct OutputSlot {
  const char *name, *columns;
  Element element = Element::kFloat32;
  const char* below = "";  // of int32: its numbers are from 0 to below this size; "": anything
};

enum class WeightForm {
  kVector,    // kept as float32
  kTable,     // a matrix, kept as float32, with a row for each position
  kLookup,    // a matrix in the caller's memory, whose rows an input chooses
  kMatrices,  // one or more, one below the other, packed for products
  kBiases,    // one vector for each matrix of a slot, kept as one float32 vector
  kStack,     // matrices of one size, packed for products, all or those that an input chooses; one
              // or more stacks, one below the other
  kStackBiases,  // a matrix for each stack of a slot, with a row for each of its matrices, as
                 // float32
};

struct WeightSlot {
  const char* name;
  WeightForm form;
  Need need;
  // Another slot, or "": of biases their matrices or stacks, of a lookup the input that chooses, as
  // of a stack if one does.
  const char* linked;
  const char* rows;  // of a vector: its length
  const char* columns = "";
  const char* planes = "";  // of a stack: its matrices
};

enum class AttributeType { kNumber, kInteger, kChoice };
constexpr double kNoLeast = -std::numeric_limits<double>::infinity();

struct AttributeSlot {
  const char* name;
  AttributeType type;
  const char* letter = "";  // of an integer that is a size
  double least = kNoLeast;
  std::vector<const char*> choices{};
};

// State that a node keeps between steps, in the cache that the attribute `cache` names.
enum class CacheForm { kNone, kKeysAndValues, kState };

struct CacheSlot {
  CacheForm form = CacheForm::kNone;
  // Attributes of keys and values: the heads, the elements of a head of a key and of a value.
  // Attributes of a state: its rows and columns.
  std::vector<const char*> sizes{};
  // The attribute that says how many positions a token reads, 0 for all; or "".
  const char* window = "";
  bool is_written_before = false;  // by another node; this one only reads it
};

struct Relation {
  enum How { kAtLeast, kAtMost, kMultipleOf };
  const char* left;
  How how;
  const char* right;
};

enum NodeTraits : unsigned {
  kNoTraits = 0,
  kSelects = 1,    // has a row for each token, and gives the selected rows
  kDraws = 2,      // draws tokens from its first input, by the sampling parameters of each slot
  kExchanges = 4,  // its output depends on what its first input has on the other ranks
  // Roles, of which a kind has one or none.
  kProduct = 8,       // multiplies its first input with matrices, and adds biases
  kNorm = 16,         // scales a row by all of it
  kGate = 32,         // multiplies one half of a row by an activation of the other
  kElementwise = 64,  // works on each column by itself
  kSum = 128,         // adds its two inputs
};

struct NodeKind {
  const char* name;
  unsigned traits;
  std::vector<InputSlot> inputs;
  std::vector<OutputSlot> outputs;
  std::vector<WeightSlot> weights{};
  std::vector<AttributeSlot> attributes{};
  CacheSlot cache{};
  std::vector<Relation> relations{};
  // Groups of optional weights: all weights of a group are given, or none.
  std::vector<std::vector<const char*>> together{};

  bool selects() const { return traits & kSelects; }
  bool draws() const { return traits & kDraws; }
  bool exchanges() const { return traits & kExchanges; }
  bool is(NodeTraits trait) const { return traits & trait; }
  bool has_cache() const { return cache.form != CacheForm::kNone; }
  bool writes_cache() const { return has_cache() && !cache.is_written_before; }
};

// The index of the slot of this name, which must exist.
template <class Slot>
std::size_t slot_index(const std::vector<Slot>& slots, const std::string& name) {
  std::size_t index = 0;
  while (slots[index].name != name) ++index;
  return index;
}

// Sorted by name.
const std::vector<NodeKind>& node_kinds();

}  // namespace tensor_ops::decode
