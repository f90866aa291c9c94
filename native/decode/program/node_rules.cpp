#include "decode/program/node_rules.h"

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "declaration/errors.h"
#include "decode/program/node_kind.h"
#include "decode/program/sizes.h"

namespace tensor_ops::decode {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Calls visit(factor, letters) for each term of a size.
template <class Visit>
void for_terms(std::string_view size, Visit visit) {
  while (!size.empty()) {
    const std::string_view term = size.substr(0, size.find('+'));
    std::size_t factor = 0, digits = 0;
    for (; digits < term.size() && is_digit(term[digits]); ++digits)
      factor = 10 * factor + static_cast<std::size_t>(term[digits] - '0');
    visit(digits == 0 ? 1 : factor, term.substr(digits));
    size.remove_prefix(term.size() == size.size() ? term.size() : term.size() + 1);
  }
}

bool holds(const Relation& relation, std::size_t left, std::size_t right) {
  switch (relation.how) {
    case Relation::kAtLeast:
      return left >= right;
    case Relation::kAtMost:
      return left <= right;
    case Relation::kMultipleOf:
      return left % right == 0;
  }
  return false;
}

constexpr const char* kHow[] = {"at least", "at most", "a multiple of"};

// The numbers that the letters of a node's slots stand for. The first slot with a letter decides.
class DimensionVariables {
 public:
  // where: the node in words, for errors.
  DimensionVariables(std::string where, std::size_t positions) : where_(std::move(where)) {
    letters_['P'] = {positions, "limits.max_seq_length"};
  }

  // Throws ValueError unless a number equals a size; `what` says in words which number it is.
  void match(std::string_view size, std::size_t given, const std::string& what) {
    if (size.empty()) return;
    if (knows(size)) {
      if (given != value(size))
        throw ValueError(
            text(where_, ": ", what, " must be ", value(size), " (", size, "), got ", given));
      return;
    }
    // One term, of whose letters the others are known.
    for_terms(size, [&](std::size_t factor, std::string_view letters) {
      char unknown = letters.front();
      for (const char letter : letters)
        if (const auto found = letters_.find(letter); found != letters_.end())
          factor = size_product(where_, factor, found->second.value);
        else
          unknown = letter;
      if (given % factor != 0)
        throw ValueError(
            text(where_, ": ", what, " must be a multiple of ", factor, ", got ", given));
      letters_[unknown] = {given / factor, what};
    });
  }

  // Throws ValueError unless a relation holds, if all of its letters are decided.
  void require(const Relation& relation) const {
    if (!knows(relation.left) || !knows(relation.right)) return;
    const std::size_t left = value(relation.left), right = value(relation.right);
    if (!holds(relation, left, right))
      throw ValueError(text(where_, ": ", in_words(relation.left), " must be ", kHow[relation.how],
                            " ", in_words(relation.right), ", got ", left, " and ", right));
  }

  // The number that a size stands for. All of its letters must be decided. Throws SizeError where
  // it is more than any memory.
  std::size_t value(std::string_view size) const {
    std::size_t sum = 0;
    for_terms(size, [&](std::size_t factor, std::string_view letters) {
      std::size_t product = factor;
      for (const char letter : letters)
        product = size_product(where_, product, letters_.at(letter).value);
      add_size(where_.c_str(), sum, product);
    });
    return sum;
  }

  bool knows(std::string_view size) const {
    bool all = true;
    for_terms(size, [&](std::size_t, std::string_view letters) {
      for (const char letter : letters) all &= letters_.count(letter) > 0;
    });
    return all;
  }

 private:
  struct Letter {
    std::size_t value;
    std::string words;
  };

  std::string in_words(std::string_view size) const {
    std::string sum;
    for_terms(size, [&](std::size_t factor, std::string_view letters) {
      std::string product = factor > 1 || letters.empty() ? text(factor) : "";
      for (const char letter : letters)
        product += (product.empty() ? "" : " * ") + letters_.at(letter).words;
      sum += (sum.empty() ? "" : " + ") + product;
    });
    return sum;
  }

  const std::string where_;
  std::map<char, Letter> letters_;
};

bool is_int32(Element element) { return element == Element::kInt32; }
constexpr const char* kShapes[] = {"", "a vector", "a matrix", "a stack of matrices"};
const char* element_name(bool is_int32) { return is_int32 ? "int32" : "float32"; }
bool is_vector(WeightForm form) {
  return form == WeightForm::kVector || form == WeightForm::kBiases;
}
bool is_list(WeightForm form) {
  return form == WeightForm::kMatrices || form == WeightForm::kBiases ||
         form == WeightForm::kStack || form == WeightForm::kStackBiases;
}

class Rules {
 public:
  Rules(Program& program, Node& node)
      : program_(program),
        node_(node),
        kind_(*node.kind),
        letters_(node.where(), program.limits.max_seq_length) {}

  void check() {
    match_attributes();
    match_relations();
    if (kind_.has_cache()) match_cache();
    match_inputs();
    for (std::size_t s = 0; s < node_.weights.size(); ++s)
      if (!node_.weights[s].empty()) match_weight(s);
    check_together();
    match_relations();
    check_bounds();
    match_outputs();
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    throw ValueError(text(node_.where(), ": ", parts...));
  }
  const Value& first() const { return program_.values[node_.inputs[0]]; }

  void match_attributes() {
    for (std::size_t i = 0; i < kind_.attributes.size(); ++i)
      letters_.match(kind_.attributes[i].letter, static_cast<std::size_t>(node_.attributes[i]),
                     kind_.attributes[i].name);
  }

  void match_relations() const {
    for (const Relation& relation : kind_.relations) letters_.require(relation);
  }

  void match_cache() {
    const Cache& cache = program_.caches[node_.cache];
    if (cache.form != kind_.cache.form)
      refuse("its cache must keep ", kind_.cache.form == CacheForm::kState
                                         ? "a state, got keys and values"
                                         : "keys and values, got a state");
    if (cache.form == CacheForm::kState) {
      letters_.match(kind_.cache.sizes[0], cache.rows, "rows of the cache");
      letters_.match(kind_.cache.sizes[1], cache.columns, "columns of the cache");
      return;
    }
    letters_.match(kind_.cache.sizes[0], cache.num_kv_heads, "num_kv_heads of the cache");
    letters_.match(kind_.cache.sizes[1], cache.head_size, "head_size of the cache");
    letters_.match(kind_.cache.sizes[2], cache.value_size, "value_size of the cache");
  }

  void match_inputs() {
    for (std::size_t i = 0; i < kind_.inputs.size(); ++i) {
      const InputSlot& slot = kind_.inputs[i];
      const Value& value = program_.values[node_.inputs[i]];
      if (value.is_int32 != is_int32(slot.element))
        refuse(slot.name, " must be ", element_name(is_int32(slot.element)), ", got ",
               element_name(value.is_int32));
      if (value.rows != first().rows)
        refuse(slot.name, " must have the same rows as ", kind_.inputs[0].name,
               ": those of all tokens or the selected ones");
      letters_.match(slot.columns, value.columns, text("columns of ", slot.name));
    }
    if ((kind_.selects() || kind_.writes_cache()) && first().rows != Rows::kTokens)
      refuse(kind_.inputs[0].name, " must have a row for each token, not selected rows");
  }

  // Several tensors are one below the other, or biases of stacks side by side: the sum of their
  // rows or columns is matched.
  void match_weight(std::size_t s) {
    const WeightSlot& slot = kind_.weights[s];
    const auto& tensors = node_.weights[s];
    if (!is_list(slot.form) && tensors.size() != 1)
      refuse(slot.name, " must be one tensor, got ", tensors.size());
    if (slot.form == WeightForm::kStack) return match_stacks(s);
    const bool is_of_stacks = slot.form == WeightForm::kStackBiases;
    const bool is_by_columns = is_vector(slot.form) || is_of_stacks;
    const int expected = is_vector(slot.form) ? 1 : 2;
    std::size_t joined = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const Tensor& tensor = program_.tensors[tensors[i]];
      const std::string what = text(slot.name, " '", tensor.name, "'");
      if (tensor.dimensions != expected)
        refuse(what, " must be ", kShapes[expected], ", got ", kShapes[tensor.dimensions]);
      joined += is_by_columns ? tensor.columns : tensor.rows;
      if (is_of_stacks)
        letters_.match(slot.rows, tensor.rows, "rows of " + what);
      else if (expected > 1)
        letters_.match(slot.columns, tensor.columns, "columns of " + what);
      if (is_of_stacks || slot.form == WeightForm::kBiases)
        check_bias(slot, i, tensors.size(), tensor);
    }
    const char* const axis = is_vector(slot.form) ? "length" : is_of_stacks ? "columns" : "rows";
    letters_.match(is_of_stacks ? slot.columns : slot.rows, joined, text(axis, " of ", slot.name));
  }

  // A stack is one tensor, or matrices one after another.
  void match_stacks(std::size_t s) {
    const WeightSlot& slot = kind_.weights[s];
    const auto& tensors = node_.weights[s];
    const bool is_known = letters_.knows(slot.planes);
    const Tensor& begin = program_.tensors[tensors[0]];
    node_.planes = is_known ? letters_.value(slot.planes) : begin.planes;
    std::size_t planes = 0, rows = 0;
    const Tensor* first = nullptr;  // of a stack
    for (const std::size_t index : tensors) {
      const Tensor& tensor = program_.tensors[index];
      const std::string what = text(slot.name, " '", tensor.name, "'");
      if (tensor.dimensions < (is_known ? 2 : 3))
        refuse(what, " must be a stack of matrices", is_known ? " or a matrix" : "", ", got ",
               kShapes[tensor.dimensions]);
      if (planes % node_.planes == 0) {
        first = &tensor;
        rows += tensor.rows;
      }
      planes += tensor.planes;
      if (tensor.rows != first->rows || (tensor.planes != 1 && tensor.planes != node_.planes) ||
          (tensor.planes > 1 && planes % node_.planes != 0))
        refuse(slot.name, " must be stacks of ", node_.planes, " matrices of one size; ", what,
               " has ", tensor.planes, " of ", tensor.rows, " rows");
      letters_.match(slot.columns, tensor.columns, "columns of " + what);
    }
    if (planes % node_.planes != 0)
      refuse(slot.name, " must be stacks of ", node_.planes, " matrices, got ", planes);
    letters_.match(slot.planes, node_.planes, text("matrices of ", slot.name));
    letters_.match(slot.rows, rows, text("rows of ", slot.name));
  }

  void check_bias(const WeightSlot& slot, std::size_t i, std::size_t count,
                  const Tensor& bias) const {
    const std::size_t of = slot_index(kind_.weights, slot.linked);
    const std::vector<std::size_t> matrices = firsts_of(of);
    const std::size_t expected = i < matrices.size() ? program_.tensors[matrices[i]].rows : 0;
    if (count != matrices.size() || bias.columns != expected)
      refuse(slot.name, " must have for each matrix a vector of as many numbers as it has rows; ",
             slot.name, " '", bias.name, "' has ", bias.columns, " for ", expected);
  }

  // The matrices of a slot, or of each of its stacks the first tensor.
  std::vector<std::size_t> firsts_of(std::size_t s) const {
    std::vector<std::size_t> firsts;
    std::size_t planes = 0;
    for (const std::size_t index : node_.weights[s]) {
      if (planes % node_.planes == 0) firsts.push_back(index);
      planes += program_.tensors[index].planes;
    }
    return firsts;
  }

  void check_together() const {
    const auto is_given = [this](const char* name) {
      return !node_.weights[slot_index(kind_.weights, name)].empty();
    };
    for (const auto& names : kind_.together)
      for (const char* name : names)
        if (is_given(name) != is_given(names[0]))
          refuse(names[0], " and ", name, " must both be given, or neither");
  }

  void check_bounds() {
    node_.below.assign(node_.inputs.size(), kAbsent);
    for (std::size_t i = 0; i < kind_.inputs.size(); ++i) {
      const InputSlot& slot = kind_.inputs[i];
      if (!*slot.below) continue;
      const std::size_t end = node_.below[i] = letters_.value(slot.below);
      // Tokens are checked before each step to be below all bounds.
      if (node_.inputs[i] == kTokens) continue;
      const Value& value = program_.values[node_.inputs[i]];
      if (value.below == kAbsent || value.below > end)
        refuse(slot.name, " must be the value 'tokens', got '", value.name, "', ",
               value.below == kAbsent ? "of which nothing is stated" : text("below ", value.below),
               "; another must be stated to be below ", end, " by the node that writes it");
    }
  }

  void match_outputs() {
    const Rows rows = kind_.selects() ? Rows::kSelected : first().rows;
    for (std::size_t i = 0; i < kind_.outputs.size(); ++i) {
      const OutputSlot& slot = kind_.outputs[i];
      Value& value = program_.values[node_.outputs[i]];
      if (value.rows != rows)
        refuse("its output '", value.name, "' must have the rows '",
               rows == Rows::kTokens ? "tokens'" : "selected'");
      if (value.is_int32 != is_int32(slot.element))
        refuse("its output '", value.name, "' must be ", element_name(is_int32(slot.element)));
      letters_.match(slot.columns, value.columns, text("columns of output '", value.name, "'"));
      if (*slot.below) value.below = letters_.value(slot.below);
    }
  }

  Program& program_;
  Node& node_;
  const NodeKind& kind_;
  DimensionVariables letters_;
};

}  // namespace

void check_node(Program& program, Node& node) { Rules(program, node).check(); }

}  // namespace tensor_ops::decode
