// A program: what one step of a model computes, read from JSON that nobody has checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "declaration/shared.h"
#include "decode/program/node_kind.h"
#include "decode/program/tensor_type.h"

namespace tensor_ops::decode {

constexpr std::size_t kAbsent = static_cast<std::size_t>(-1);

// Whether a value has a row for each token of the step, or for each token whose logits are wanted.
enum class Rows { kTokens, kSelected };

// Each from 1 to 2^31 - 1; the states beside those of the slots from 0.
struct Limits {
  std::size_t max_requests, max_tokens, max_selected, max_seq_length, page_size, num_pages;
  std::size_t extra_states = 0;

  std::size_t rows(Rows of) const { return of == Rows::kTokens ? max_tokens : max_selected; }
  std::size_t pages_per_request() const { return (max_seq_length - 1) / page_size + 1; }
  std::size_t num_states() const { return max_requests + extra_states; }
  // Every token of a sequence may be penalized, and 1024 others biased.
  std::size_t edits_per_request() const { return max_seq_length + 1024; }
};

struct Tensor {
  std::string name;
  const TensorType* type;
  int dimensions;
  std::size_t planes, rows, columns;  // a matrix is one plane, a vector one row of it

  std::size_t bytes() const { return planes * rows * type->row_bytes(columns); }
  std::vector<std::size_t> shape() const {
    const std::size_t all[] = {planes, rows, columns};
    return {all + 3 - dimensions, all + 3};
  }
};

// The bytes of a tensor in the caller's memory; null where they are not given.
struct TensorBytes {
  const unsigned char* first = nullptr;
  std::size_t bytes = 0;
  // Whether this is a file that is mapped for reading alone: the system may take back the memory of
  // what was read, since it can be read from the file again.
  bool is_mapped_file = false;
};

struct Cache {
  std::string name;
  CacheForm form;
  // Sizes of keys and values. A key has head_size elements in each head, a value value_size.
  std::size_t num_kv_heads, head_size, value_size;
  CacheType type;
  bool is_paged;
  // Sizes of a state, a matrix of float32: there are Limits::num_states() of them.
  std::size_t rows, columns;
};

struct Value {
  std::string name;
  Rows rows;
  std::size_t columns;
  bool is_int32;
  std::size_t below = kAbsent;  // its integers are stated to be from 0 to below this
};

constexpr std::size_t kTokens = 0;  // the value that is predefined

struct Node {
  std::string name;
  const NodeKind* kind;
  // By the slots of the kind: indices of values.
  std::vector<std::size_t> inputs;
  std::vector<std::size_t> below;  // the integers of each input must be below this, or kAbsent
  std::vector<std::size_t> outputs;
  std::vector<std::vector<std::size_t>> weights;  // indices of tensors
  std::size_t planes = 1;                         // matrices of each stack that it has
  // The bits of each attribute, which is an integer, a double or the index of a choice.
  std::vector<std::int64_t> attributes;
  std::size_t cache = kAbsent;

  // How many positions of its cache a token reads, up to its own; 0: all.
  std::size_t window() const;
  // "node 'blk.0.attention' (attention)"
  std::string where() const;
};

struct Program {
  Limits limits;
  std::vector<Tensor> tensors;
  std::vector<Cache> caches;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<std::size_t> outputs;  // values
  // The nodes from here on are those of draft steps; as many as there are nodes if there are none.
  std::size_t num_step_nodes = 0;

  bool has_draft() const { return num_step_nodes < nodes.size(); }
};

// Throws ValueError unless the bytes of all tensors that nodes use, and that are wanted, are given.
void require_tensors(const Program& program, const std::vector<TensorBytes>& tensors,
                     const std::vector<bool>& wanted);

// An output by its name; null where there is none.
const Value* find_output(const Program& program, const std::string& name);

// The number that every token must be below: the rows of the smallest table of embeddings.
std::size_t vocabulary_size(const Program& program);

// Throws ValueError for whatever is wrong: syntax, names, dataflow or shapes.
TENSOR_OPS_SHARED Program parse_program(std::string_view json);

}  // namespace tensor_ops::decode
