#include "decode/executor/lowering.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "declaration/errors.h"
#include "decode/program/node_slots.h"
#include "product_kinds.h"

namespace tensor_ops::decode {
namespace {

constexpr std::size_t kMostSpans = 128;

template <class Node_>
typename Node_::Attributes attributes_of(const Node& node) {
  typename Node_::Attributes attributes;
  std::memcpy(&attributes, node.attributes.data(), sizeof attributes);
  return attributes;
}

// Nodes that the kernel runs before and after products: others are refused where they are alone.
constexpr FusionRules kRules{
    [](const NodeKind& kind) { return kind.name == std::string("rms_norm"); },
    [](const NodeKind& kind) { return kind.name == std::string("silu_mul"); }};

class Lowering {
 public:
  explicit Lowering(const Program& program)
      : program_(program),
        writer_(program.values.size(), kAbsent),
        readers_(program.values.size()) {
    for (std::size_t n = 0; n < program.nodes.size(); ++n) {
      for (std::size_t input : program.nodes[n].inputs) readers_[input].push_back(n);
      for (std::size_t output : program.nodes[n].outputs) writer_[output] = n;
    }
  }

  LoweredProgram lowered() {
    lowered_.fused = phases_of(program_, kRules);
    for (const Phase& phase : lowered_.fused) {
      const std::size_t n = phase.main;
      const std::string kind = program_.nodes[n].kind->name;
      if (kind == "embed")
        add_embed(n);
      else if (program_.nodes[n].kind->is(kProduct))
        add_product(phase);
      else if (kind == "rms_norm")
        refuse(n, "this kind where only a product reads it");
      else if (kind == "silu_mul")
        refuse(n, "this kind where a product that nothing else reads has its gate and up");
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

  LoweredPhase& add(std::size_t n, DevicePhase::Kind kind) {
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
    LoweredPhase& added = add(n, DevicePhase::kEmbed);
    set_matrices(added, n, EmbedNode::kWeight);
    added.y = output_of(n);
  }

  int product_kind(std::size_t n) {
#define TENSOR_OPS_PRODUCT_NAME(kind) #kind,
    static const std::vector<std::string> names{
        TENSOR_OPS_FOR_EACH_PRODUCT(TENSOR_OPS_PRODUCT_NAME)};
#undef TENSOR_OPS_PRODUCT_NAME
    const auto found = std::find(names.begin(), names.end(), kind_of(n));
    if (found == names.end())
      throw Error(text("the cuda backend runs no nodes of the kind ", kind_of(n)));
    return static_cast<int>(found - names.begin());
  }

  void add_product(const Phase& phase) {
    const std::size_t n = phase.main;
    const Node& node = program_.nodes[n];
    const auto product = product_kind(n);  // which has slots for matrices and for biases
    const auto slot_of = [&](WeightForm form) {
      const auto& slots = node.kind->weights;
      return static_cast<std::size_t>(
          std::find_if(slots.begin(), slots.end(),
                       [form](const WeightSlot& slot) { return slot.form == form; }) -
          slots.begin());
    };
    if (!node.weights[slot_of(WeightForm::kBiases)].empty()) refuse(n, "products without a bias");
    LoweredPhase& added = add(n, DevicePhase::kProduct);
    added.phase.product = product;
    const std::size_t bytes = node.attributes.size() * sizeof node.attributes[0];
    if (bytes > sizeof added.phase.attributes) refuse(n, "products of at most two attributes");
    std::copy(node.attributes.begin(), node.attributes.end(), added.phase.attributes);
    set_matrices(added, n, slot_of(WeightForm::kMatrices));
    set_source(added, n, phase.reads[0]);
    if (phase.before != kAbsent) {
      added.norm = tensor_of(phase.before, RmsNormNode::kWeight);
      added.phase.eps = attributes_of<RmsNormNode>(program_.nodes[phase.before]).eps;
    }
    set_residual(added, phase.residual);
    const std::size_t output = phase.writes[0];
    added.y = output;
    if (phase.after != kAbsent) {
      gate(added);
    } else if (is_read_by(output, "attention")) {
      if (added.residual != kAbsent) refuse(n, "attention to products without a residual only");
      rotate(added, only_reader(output));
    } else if (std::any_of(readers_[output].begin(), readers_[output].end(), [&](std::size_t r) {
                 return kind_of(r) == "argmax" || kind_of(r) == "sample";
               })) {
      if (added.residual != kAbsent) refuse(n, "logits without a residual only");
      added.phase.result = DevicePhase::kLogits;
    }
  }

  void add_sum(std::size_t n) {
    LoweredPhase& added = add(n, DevicePhase::kAdd);
    const std::size_t a = program_.nodes[n].inputs[AddNode::kA];
    added.x = before_select(a);
    if (added.x != a) added.phase.source = DevicePhase::kSelectedRows;
    set_residual(added, program_.nodes[n].inputs[AddNode::kB]);
    added.y = output_of(n);
    added.phase.columns = static_cast<int>(program_.values[added.y].columns);
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
      added.phase.source = DevicePhase::kSelectedRows;
      value = before_select(value);
    } else if (kind_of(writer) == "attention") {
      added.phase.source = DevicePhase::kAttended;
      for (const LoweredPhase& phase : lowered_.phases)
        if (phase.phase.node == static_cast<int>(writer))
          added.phase.attention = phase.phase.attention;
      added.cache = program_.nodes[writer].cache;
      value = kAbsent;
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
    added.phase.result = DevicePhase::kGated;
  }

  // Pairs that are rotated become neighbours: attention does not ask for the order within a head.
  void rotate(LoweredPhase& added, std::size_t n) {
    const auto attributes = attributes_of<AttentionNode>(program_.nodes[n]);
    added.phase.result = DevicePhase::kRotated;
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
    if (!node.weights[AttentionNode::kQueryScale].empty())
      refuse(n, "attention without a scale of queries by their positions");
    if (!node.weights[AttentionNode::kSinks].empty()) refuse(n, "attention without sinks");
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
    if (product == nullptr || product->phase.result != DevicePhase::kRotated)
      refuse(n, "attention to a product that nothing else reads");
    for (std::size_t reader : readers_[output_of(n)])
      if (!program_.nodes[reader].kind->is(kProduct))
        refuse(n, "attention that only products multiply, but ", program_.nodes[reader].where(),
               " reads it otherwise");
    if (is_output(output_of(n))) refuse(n, "attention that is no output of the program");
    LoweredPhase& added = add(n, DevicePhase::kAttend);
    added.phase.attention = attention_of(n);
    added.cache = program_.nodes[n].cache;
  }

  // All attention has its queries, and what it has found, in the same memory.
  void check_order_of_attention() const {
    std::size_t queries_of = kAbsent, found_of = kAbsent;  // caches
    for (const LoweredPhase& each : lowered_.phases) {
      const auto n = static_cast<std::size_t>(each.phase.node);
      if (each.phase.kind == DevicePhase::kAttend) {
        if (each.cache != queries_of)
          refuse(n, "attention before the next product that other attention reads");
        found_of = each.cache;
      } else if (each.phase.source == DevicePhase::kAttended && each.cache != found_of) {
        refuse(n, "products of attention before the next attention");
      } else if (each.phase.result == DevicePhase::kRotated) {
        queries_of = each.cache;
      }
    }
  }

  // Readers of selected rows look them up among the rows of all tokens.
  void check_select(std::size_t n) {
    const auto looks_up_rows = [](const NodeKind& kind) {
      return kind.is(kProduct) || kind.is(kNorm) || kind.is(kSum);
    };
    for (std::size_t reader : readers_[output_of(n)])
      if (!looks_up_rows(*program_.nodes[reader].kind))
        refuse(n, "selected rows that are only multiplied or added, but ",
               program_.nodes[reader].where(), " reads them otherwise");
    if (is_output(output_of(n))) refuse(n, "selected rows that are no output of the program");
  }

  void add_chooser(std::size_t n) {
    const std::size_t logits = program_.nodes[n].inputs[0];
    const LoweredPhase* const product = writer_of(logits);
    const bool is_last_product = product != nullptr && product == &lowered_.phases.back() &&
                                 product->phase.result == DevicePhase::kLogits;
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
