#include "decode/executor/lowering.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "declaration/errors.h"
#include "decode/program/node_slots.h"

namespace tensor_ops::decode {
namespace {

constexpr std::size_t kMostSpans = 128;

template <class Node_>
typename Node_::Attributes attributes_of(const Node& node) {
  typename Node_::Attributes attributes;
  std::memcpy(&attributes, node.attributes.data(), sizeof attributes);
  return attributes;
}

class Lowering {
 public:
  explicit Lowering(const Program& program)
      : program_(program),
        writer_(program.values.size(), kAbsent),
        readers_(program.values.size()) {
    for (std::size_t n = 0; n < program.nodes.size(); ++n) {
      for (std::size_t input : program.nodes[n].inputs)
        if (input != kAbsent) readers_[input].push_back(n);
      for (std::size_t output : program.nodes[n].outputs) writer_[output] = n;
    }
  }

  LoweredProgram lowered() {
    for (std::size_t n = 0; n < program_.nodes.size(); ++n) {
      const std::string kind = program_.nodes[n].kind->name;
      if (kind == "embed")
        add_embed(n);
      else if (kind == "rms_norm_linear")
        add_product(n, RmsNormLinearNode::kWeight);
      else if (kind == "linear")
        add_product(n, LinearNode::kWeight);
      else if (kind == "silu_mul_linear_with_residual")
        add_gated_product(n);
      else if (kind == "silu_mul")
        check_silu_mul(n);
      else if (kind == "attention")
        add_attention(n);
      else if (kind == "add")
        add_sum(n);
      else if (program_.nodes[n].kind->exchanges())
        lowered_.cuts.push_back(
            {lowered_.phases.size(), program_.nodes[n].inputs[0], output_of(n), n});
      else if (kind == "select")
        check_select(n);
      else if (kind == "argmax" || kind == "sample")
        add_chooser(n);
      else
        throw Error(text("the cuda backend runs no nodes of the kind ", kind));
    }
    check_order_of_attention();
    return std::move(lowered_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(std::size_t n, const Parts&... parts) const {
    throw Error(text(program_.nodes[n].where(), ": the cuda backend runs ", parts...));
  }
  const std::string& kind_of(std::size_t n) { return kind_ = program_.nodes[n].kind->name; }
  bool is_output(std::size_t value) const {
    const auto& outputs = program_.outputs;
    return std::find(outputs.begin(), outputs.end(), value) != outputs.end();
  }
  // The one node that reads a value which nobody else sees; kAbsent if there is no such node.
  std::size_t only_reader(std::size_t value) const {
    return readers_[value].size() == 1 && !is_output(value) ? readers_[value][0] : kAbsent;
  }
  // Whether a node reads a value as its first input, and as no other.
  bool reads_first(std::size_t n, std::size_t value) const {
    const auto& inputs = program_.nodes[n].inputs;
    return inputs[0] == value && std::count(inputs.begin(), inputs.end(), value) == 1;
  }
  bool is_read_by(std::size_t value, const char* kind) {
    const std::size_t reader = only_reader(value);
    return reader != kAbsent && kind_of(reader) == kind;
  }
  std::size_t tensor_of(std::size_t n, std::size_t slot) const {
    const auto& tensors = program_.nodes[n].weights[slot];
    return tensors.empty() ? kAbsent : tensors[0];
  }
  std::size_t output_of(std::size_t n) const { return program_.nodes[n].outputs[0]; }
  bool is_selected(std::size_t value) const {
    return program_.values[value].rows == Rows::kSelected;
  }

  // The one type of all matrices of a slot.
  WeightFormat format_of(std::size_t n, std::size_t slot) const {
    const auto& tensors = program_.nodes[n].weights[slot];
    const std::string name = program_.tensors[tensors[0]].type->name;
    for (std::size_t index : tensors)
      if (program_.tensors[index].type->name != name)
        refuse(n, "matrices of one type in a node, got ", name, " and ",
               program_.tensors[index].type->name);
    if (name == "q8_0") return WeightFormat::kQ8_0;
    if (name == "q4_0") return WeightFormat::kQ4_0;
    if (name == "bf16") return WeightFormat::kBFloat16;
    refuse(n, "matrices of q8_0, q4_0 and bf16, got ", name, " ('",
           program_.tensors[tensors[0]].name,
           "'); take a file of q8_0 or q4_0, or a folder of bf16, which quantize=\"q8_0\" packs");
  }

  LoweredPhase& add(std::size_t n, Phase::Kind kind) {
    LoweredPhase& added = lowered_.phases.emplace_back();
    added.phase.kind = kind;
    added.phase.node = static_cast<int>(n);
    added.phase.is_selected = is_selected(output_of(n));
    // Where no token is selected, a step ends before the phases of selected ones.
    if (lowered_.phases.size() > 1 && !added.phase.is_selected &&
        lowered_.phases[lowered_.phases.size() - 2].phase.is_selected)
      refuse(n, "nodes of all tokens before those of the selected ones");
    return added;
  }
  void set_matrices(LoweredPhase& added, std::size_t n, std::size_t slot) {
    added.format = format_of(n, slot);
    for (std::size_t index : program_.nodes[n].weights[slot])
      for (std::size_t row = 0; row < program_.tensors[index].rows; ++row)
        added.rows.push_back({index, row});
    const std::size_t columns = program_.tensors[tensor_of(n, slot)].columns;
    constexpr std::size_t kMost = std::size_t{1} << 27;
    if (added.rows.size() > kMost || columns > kMost)
      refuse(n, "matrices of at most ", kMost, " rows and columns");
    added.phase.rows = static_cast<int>(added.rows.size());
    added.phase.columns = static_cast<int>(columns);
  }

  void add_embed(std::size_t n) {
    const Node& node = program_.nodes[n];
    if (node.inputs[EmbedNode::kTokens] != kTokens) refuse(n, "embeddings of the tokens alone");
    LoweredPhase& added = add(n, Phase::kEmbed);
    set_matrices(added, n, EmbedNode::kWeight);
    added.y = output_of(n);
  }

  void add_product(std::size_t n, std::size_t slot) {
    const Node& node = program_.nodes[n];
    const bool has_norm = kind_of(n) == "rms_norm_linear";
    const std::size_t bias = has_norm ? std::size_t{RmsNormLinearNode::kBias} : LinearNode::kBias;
    if (!node.weights[bias].empty()) refuse(n, "products without a bias");
    LoweredPhase& added = add(n, Phase::kProduct);
    set_matrices(added, n, slot);
    set_source(added, n, node.inputs[0]);
    if (has_norm) {
      added.norm = tensor_of(n, RmsNormLinearNode::kNorm);
      added.phase.eps = attributes_of<RmsNormLinearNode>(node).eps;
      if (added.phase.source == Phase::kAttended)
        refuse(n, "norms of attention after a product only");
    } else {
      set_residual(added, node.inputs[LinearNode::kResidual]);
    }
    const std::size_t output = output_of(n);
    added.y = output;
    if (is_read_by(output, "attention")) {
      if (added.residual != kAbsent) refuse(n, "attention to products without a residual only");
      rotate(added, only_reader(output));
    } else if (is_read_by(output, "silu_mul_linear_with_residual") && added.residual == kAbsent &&
               program_.nodes[only_reader(output)].inputs[0] == output) {
      gate(added);
    } else if (is_read_by(output, "silu_mul") && added.residual == kAbsent) {
      gate(added);
    } else if (std::any_of(readers_[output].begin(), readers_[output].end(), [&](std::size_t r) {
                 return kind_of(r) == "argmax" || kind_of(r) == "sample";
               })) {
      if (added.residual != kAbsent) refuse(n, "logits without a residual only");
      added.phase.result = Phase::kLogits;
    }
  }

  void add_sum(std::size_t n) {
    LoweredPhase& added = add(n, Phase::kAdd);
    const std::size_t a = program_.nodes[n].inputs[AddNode::kA];
    added.x = before_select(a);
    if (added.x != a) added.phase.source = Phase::kSelectedRows;
    set_residual(added, program_.nodes[n].inputs[AddNode::kB]);
    added.y = output_of(n);
    added.phase.columns = static_cast<int>(program_.values[added.y].columns);
  }

  void add_gated_product(std::size_t n) {
    const Node& node = program_.nodes[n];
    if (!node.weights[SiluMulLinearWithResidualNode::kBias].empty())
      refuse(n, "products without a bias");
    const std::size_t x = node.inputs[SiluMulLinearWithResidualNode::kX];
    if (x == kTokens || writer_of(x) == nullptr || writer_of(x)->phase.result != Phase::kGated)
      refuse(n, "this kind where a product that nothing else reads has its gate and up");
    LoweredPhase& added = add(n, Phase::kProduct);
    set_matrices(added, n, SiluMulLinearWithResidualNode::kWeight);
    set_source(added, n, x);
    set_residual(added, node.inputs[SiluMulLinearWithResidualNode::kResidual]);
    added.y = output_of(n);
  }

  // The product before it applies it, and those after it read what that one has written.
  void check_silu_mul(std::size_t n) {
    const LoweredPhase* const product = writer_of(program_.nodes[n].inputs[SiluMulNode::kX]);
    if (product == nullptr || product->phase.result != Phase::kGated)
      refuse(n, "this kind where a product that nothing else reads has its gate and up");
    for (std::size_t reader : readers_[output_of(n)])
      if (kind_of(reader) != "linear" || !reads_first(reader, output_of(n)))
        refuse(n, "this kind where only products multiply it, but ", program_.nodes[reader].where(),
               " reads it otherwise");
    if (is_output(output_of(n))) refuse(n, "this kind where it is no output of the program");
  }

  // The phase that writes a value; null if none does.
  const LoweredPhase* writer_of(std::size_t value) const {
    for (const LoweredPhase& phase : lowered_.phases)
      if (phase.y == value) return &phase;
    return nullptr;
  }

  // The value that a node selects rows of, where it writes this one; else this one.
  std::size_t before_select(std::size_t value) {
    const std::size_t writer = writer_[value];
    return kind_of(writer) == "select" ? program_.nodes[writer].inputs[SelectNode::kX] : value;
  }

  void set_residual(LoweredPhase& added, std::size_t value) {
    if (value == kAbsent) return;
    added.residual = before_select(value);
    added.phase.residual_is_selected = added.residual != value;
  }

  void set_source(LoweredPhase& added, std::size_t n, std::size_t value) {
    const std::size_t writer = writer_[value];
    if (kind_of(writer) == "select") {
      added.phase.source = Phase::kSelectedRows;
      value = before_select(value);
    } else if (kind_of(writer) == "attention") {
      added.phase.source = Phase::kAttended;
      for (const LoweredPhase& phase : lowered_.phases)
        if (phase.phase.node == static_cast<int>(writer))
          added.phase.attention = phase.phase.attention;
      added.cache = program_.nodes[writer].cache;
    } else if (kind_of(writer) == "silu_mul") {
      value = program_.nodes[writer].inputs[SiluMulNode::kX];
    }
    if (added.phase.columns % 4 != 0) refuse(n, "products of multiples of 4 columns");
    added.x = value;
  }

  void gate(LoweredPhase& added) {
    const std::vector<MatrixRow> rows = added.rows;
    const std::size_t half = rows.size() / 2;
    for (std::size_t i = 0; i < half; ++i) {
      added.rows[2 * i] = rows[i];
      added.rows[2 * i + 1] = rows[half + i];
    }
    added.phase.result = Phase::kGated;
  }

  // Pairs that are rotated become neighbours: attention does not ask for the order within a head.
  void rotate(LoweredPhase& added, std::size_t n) {
    const auto attributes = attributes_of<AttentionNode>(program_.nodes[n]);
    added.phase.result = Phase::kRotated;
    added.phase.attention = attention_of(n);
    added.cos = tensor_of(n, AttentionNode::kCos);
    added.sin = tensor_of(n, AttentionNode::kSin);
    added.cache = program_.nodes[n].cache;
    if (attributes.rotation == AttentionNode::Rotation::kInterleaved) return;
    const std::vector<MatrixRow> rows = added.rows;
    const auto size = static_cast<std::size_t>(attributes.head_size);
    const auto pairs = static_cast<std::size_t>(added.phase.attention.rotated_pairs);
    const auto heads = static_cast<std::size_t>(attributes.num_heads + attributes.num_kv_heads);
    for (std::size_t head = 0; head < heads; ++head)
      for (std::size_t i = 0; i < pairs; ++i)
        for (std::size_t k = 0; k < 2; ++k)
          added.rows[head * size + 2 * i + k] = rows[head * size + k * pairs + i];
  }

  Attention attention_of(std::size_t n) const {
    const Node& node = program_.nodes[n];
    const auto attributes = attributes_of<AttentionNode>(node);
    const Cache& cache = program_.caches[node.cache];
    if (!node.weights[AttentionNode::kQNorm].empty() ||
        !node.weights[AttentionNode::kKNorm].empty())
      refuse(n, "attention without norms of queries and keys");
    if (attributes.soft_cap != 0) refuse(n, "attention without a soft cap");
    if (attributes.head_size % 8 != 0 || attributes.head_size > kMostHeadSize)
      refuse(n, "heads of a multiple of 8 elements, at most ", kMostHeadSize, ", got ",
             attributes.head_size);
    if (cache.type == CacheType::kInt8) refuse(n, "caches of float16 and float32, got int8");
    Attention attention{};
    attention.heads = static_cast<int>(attributes.num_heads);
    attention.kv_heads = static_cast<int>(attributes.num_kv_heads);
    attention.head_size = static_cast<int>(attributes.head_size);
    attention.scale = static_cast<float>(attributes.scale);
    attention.window = static_cast<int>(std::min<std::int64_t>(attributes.window, INT32_MAX));
    const std::size_t cos = tensor_of(n, AttentionNode::kCos);
    attention.rotated_pairs = cos == kAbsent ? 0 : static_cast<int>(program_.tensors[cos].columns);
    attention.is_half = cache.type == CacheType::kFloat16;
    attention.is_paged = cache.is_paged;
    const Limits& limits = program_.limits;
    attention.page_size =
        static_cast<int>(cache.is_paged ? limits.page_size : limits.max_seq_length);
    // Short spans keep many blocks busy, and few of them leave little to be added up.
    const std::size_t rounds = (limits.max_seq_length - 1) / kRound + 1;
    attention.span = kRound * static_cast<int>((rounds - 1) / kMostSpans + 1);
    attention.most_spans = static_cast<int>(
        (limits.max_seq_length - 1) / static_cast<std::size_t>(attention.span) + 1);
    return attention;
  }

  void add_attention(std::size_t n) {
    const std::size_t qkv = program_.nodes[n].inputs[AttentionNode::kQkv];
    const LoweredPhase* const product = writer_of(qkv);
    if (product == nullptr || product->phase.result != Phase::kRotated)
      refuse(n, "attention to a product that nothing else reads");
    for (std::size_t reader : readers_[output_of(n)])
      if (kind_of(reader) != "linear" || !reads_first(reader, output_of(n)))
        refuse(n, "attention that only products multiply, but ", program_.nodes[reader].where(),
               " reads it otherwise");
    if (is_output(output_of(n))) refuse(n, "attention that is no output of the program");
    LoweredPhase& added = add(n, Phase::kAttend);
    added.phase.attention = attention_of(n);
    added.cache = program_.nodes[n].cache;
  }

  // All attention has its queries, and what it has found, in the same memory.
  void check_order_of_attention() const {
    std::size_t queries_of = kAbsent, found_of = kAbsent;  // caches
    for (const LoweredPhase& each : lowered_.phases) {
      const auto n = static_cast<std::size_t>(each.phase.node);
      if (each.phase.kind == Phase::kAttend) {
        if (each.cache != queries_of)
          refuse(n, "attention before the next product that other attention reads");
        found_of = each.cache;
      } else if (each.phase.source == Phase::kAttended && each.cache != found_of) {
        refuse(n, "products of attention before the next attention");
      } else if (each.phase.result == Phase::kRotated) {
        queries_of = each.cache;
      }
    }
  }

  // Those that read selected rows look them up among the rows of all tokens.
  void check_select(std::size_t n) {
    for (std::size_t reader : readers_[output_of(n)])
      if (!looks_up_rows(reader, output_of(n)))
        refuse(n, "selected rows that are only multiplied or added, but ",
               program_.nodes[reader].where(), " reads them otherwise");
    if (is_output(output_of(n))) refuse(n, "selected rows that are no output of the program");
  }

  bool looks_up_rows(std::size_t n, std::size_t value) {
    const std::string& kind = kind_of(n);
    if (kind == "silu_mul_linear_with_residual")
      return program_.nodes[n].inputs[SiluMulLinearWithResidualNode::kX] != value;
    return kind == "linear" || kind == "rms_norm_linear" || kind == "add";
  }

  void add_chooser(std::size_t n) {
    const std::size_t logits = program_.nodes[n].inputs[0];
    const LoweredPhase* const product = writer_of(logits);
    const bool is_last_product = product != nullptr && product == &lowered_.phases.back() &&
                                 product->phase.result == Phase::kLogits;
    lowered_.chooses_on_host = !lowered_.cuts.empty() && lowered_.cuts.back().to == logits &&
                               lowered_.cuts.back().phase == lowered_.phases.size();
    if (!(is_last_product || lowered_.chooses_on_host) || !is_selected(logits) ||
        lowered_.chooser != kAbsent || n + 1 != program_.nodes.size())
      refuse(n, "this kind as the last node, of the selected rows of the last product only");
    lowered_.chooser = n;
  }

  const Program& program_;
  std::vector<std::size_t> writer_;                // by value: the node
  std::vector<std::vector<std::size_t>> readers_;  // by value: the nodes
  std::string kind_;
  LoweredProgram lowered_;
};

}  // namespace

LoweredProgram lower(const Program& program) { return Lowering(program).lowered(); }

}  // namespace tensor_ops::decode
