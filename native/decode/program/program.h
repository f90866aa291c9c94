// A program: what one step of a model computes, read from JSON and checked as if nobody had.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "declaration/shared.h"
#include "decode/program/cache_type.h"
#include "decode/program/tensor_type.h"

namespace tensor_ops::decode {

struct NodeKind;

// Which rows a value has: those of the step's tokens, or of the tokens whose logits are wanted.
enum class Rows { kTokens, kSelected };

// Each from 1 to 2^31 - 1.
struct Limits {
  std::size_t max_requests, max_tokens, max_selected, max_seq_length, page_size, num_pages;

  std::size_t rows(Rows of) const { return of == Rows::kTokens ? max_tokens : max_selected; }
  std::size_t pages_per_request() const { return (max_seq_length - 1) / page_size + 1; }
  // Every token of a sequence may be penalized, and 1024 others biased.
  std::size_t edits_per_request() const { return max_seq_length + 1024; }
};

struct Tensor {
  std::string name;
  const TensorType* type;
  bool is_matrix;
  std::size_t rows, columns;  // a vector is one row

  std::size_t bytes() const { return rows * type->row_bytes(columns); }
};

// The bytes of a tensor in somebody's memory; null where they are not given.
struct TensorBytes {
  const unsigned char* first = nullptr;
  std::size_t bytes = 0;
};

struct Cache {
  std::string name;
  std::size_t num_kv_heads, head_size;
  CacheType type;
  bool is_paged;
};

// The arrays of every step, whose names no output may have.
constexpr const char* kStepArrays[] = {
    "tokens", "positions", "slots", "selected",  "page_table",    "temperature", "top_p",
    "min_p",  "top_k",     "seed",  "num_edits", "edited_tokens", "edit_biases", "edit_penalties"};

struct Value {
  std::string name;
  Rows rows;
  std::size_t columns;
  bool is_int32;
};

constexpr std::size_t kTokens = 0;  // the value that is predefined
constexpr std::size_t kAbsent = static_cast<std::size_t>(-1);

struct Node {
  std::string name;
  const NodeKind* kind;
  // By the slots of the kind: indices of values, kAbsent where an optional one is not given.
  std::vector<std::size_t> inputs;
  std::size_t output;
  std::vector<std::vector<std::size_t>> weights;  // indices of tensors
  std::vector<double> attributes;                 // of a choice, its index
  std::size_t cache = kAbsent;

  double attribute(const char* name) const;  // 0 where the kind has none of that name
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
};

// Throws ValueError for whatever is wrong: syntax, names, dataflow or shapes.
TENSOR_OPS_SHARED Program parse_program(std::string_view json);

}  // namespace tensor_ops::decode
