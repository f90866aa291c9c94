#include "decode/program/node_rules.h"

#include <map>

#include "declaration/errors.h"
#include "decode/program/node_kind.h"

namespace tensor_ops::decode {
namespace {

// The numbers that the letters of a node's slots stand for: the first slot decides.
class Letters {
 public:
  explicit Letters(std::string where) : where_(std::move(where)) {}

  // A size such as "H", "2F" or "1"; "" is any size.
  void match(const std::string& size, std::size_t given, const std::string& what) {
    if (size.empty()) return;
    if (size == "1") return require(given, 1, what, size);
    const std::size_t factor = size[0] == '2' ? 2 : 1;
    if (given % factor != 0)
      throw ValueError(text(where_, ": ", what, " must be a multiple of 2, got ", given));
    const auto known = value_.emplace(size.back(), given / factor).first;
    require(given, known->second * factor, what, size);
  }

 private:
  void require(std::size_t given, std::size_t expected, const std::string& what,
               const std::string& size) const {
    if (given != expected)
      throw ValueError(
          text(where_, ": ", what, " must be ", expected, " (", size, "), got ", given));
  }

  const std::string where_;
  std::map<char, std::size_t> value_;
};

void check_inputs(const Program& program, const Node& node, Letters& letters) {
  const NodeKind& kind = *node.kind;
  const Value& first = program.values[node.inputs[0]];
  for (std::size_t i = 0; i < kind.inputs.size(); ++i) {
    if (node.inputs[i] == kAbsent) continue;
    const Value& value = program.values[node.inputs[i]];
    const std::string slot = kind.inputs[i].name;
    if (value.is_int32 != kind.inputs[i].is_int32)
      throw ValueError(text(node.where(), ": ", slot, " must be ",
                            kind.inputs[i].is_int32 ? "int32, got float32" : "float32, got int32"));
    // Only these are checked before a step to be rows of every table.
    if (value.is_int32 && node.inputs[i] != kTokens)
      throw ValueError(
          text(node.where(), ": ", slot, " must be the value 'tokens', got '", value.name, "'"));
    if (value.rows != first.rows)
      throw ValueError(text(node.where(), ": ", slot, " must have the same rows as ",
                            kind.inputs[0].name, ": those of all tokens or the selected ones"));
    letters.match(kind.inputs[i].columns, value.columns, "columns of " + slot);
  }
  if ((kind.selects || kind.has_cache) && first.rows != Rows::kTokens)
    throw ValueError(text(node.where(), ": ", kind.inputs[0].name,
                          " must have a row for each token, not selected rows"));
}

void check_output(const Program& program, const Node& node, Letters& letters) {
  const NodeKind& kind = *node.kind;
  const Value& value = program.values[node.output];
  const Rows rows = kind.selects ? Rows::kSelected : program.values[node.inputs[0]].rows;
  if (value.rows != rows)
    throw ValueError(text(node.where(), ": its output '", value.name, "' must have the rows '",
                          rows == Rows::kTokens ? "tokens'" : "selected'"));
  if (value.is_int32 != kind.output.is_int32)
    throw ValueError(text(node.where(), ": its output '", value.name, "' must be ",
                          kind.output.is_int32 ? "int32" : "float32"));
  letters.match(kind.output.columns, value.columns, "columns of output '" + value.name + "'");
}

void check_weight(const Program& program, const Node& node, std::size_t s, Letters& letters) {
  const WeightSlot& slot = node.kind->weights[s];
  const auto& tensors = node.weights[s];
  if (tensors.empty()) return;
  const bool is_vector = slot.form == WeightForm::kVector || slot.form == WeightForm::kBiases;
  const bool is_list = slot.form == WeightForm::kMatrices || slot.form == WeightForm::kBiases;
  if (!is_list && tensors.size() != 1)
    throw ValueError(
        text(node.where(), ": ", slot.name, " must be one tensor, got ", tensors.size()));
  std::size_t rows = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = program.tensors[tensors[i]];
    const std::string what = text(slot.name, " '", tensor.name, "'");
    if (tensor.is_matrix == is_vector)
      throw ValueError(text(node.where(), ": ", what, " must be a ",
                            is_vector ? "vector, got a matrix" : "matrix, got a vector"));
    rows += is_vector ? tensor.columns : tensor.rows;
    if (!is_vector) letters.match(slot.columns, tensor.columns, "columns of " + what);
    if (slot.form != WeightForm::kBiases) continue;
    // A slot of biases follows that of the matrices.
    const auto& matrices = node.weights[s - 1];
    const std::size_t expected = i < matrices.size() ? program.tensors[matrices[i]].rows : 0;
    if (tensors.size() != matrices.size() || tensor.columns != expected)
      throw ValueError(text(
          node.where(), ": ", slot.name, " must have for each matrix a vector of ",
          "as many numbers as it has rows; ", what, " has ", tensor.columns, " for ", expected));
  }
  const char* const what = is_vector ? "length of " : "rows of ";
  letters.match(slot.rows, rows, what + std::string(slot.name));
}

}  // namespace

void check_node(const Program& program, const Node& node) {
  Letters letters(node.where());
  check_inputs(program, node, letters);
  for (std::size_t s = 0; s < node.weights.size(); ++s) check_weight(program, node, s, letters);
  check_output(program, node, letters);
  if (node.kind->check) node.kind->check(program, node);
}

}  // namespace tensor_ops::decode
