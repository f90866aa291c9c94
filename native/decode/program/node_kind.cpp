#include "decode/program/node_kind.h"

#include "declaration/errors.h"
#include "decode/program/sizes.h"

namespace tensor_ops::decode {
namespace {

void require(const Node& node, const std::string& what, std::size_t given, std::size_t expected) {
  if (given != expected)
    throw ValueError(text(node.where(), ": ", what, " must be ", expected, ", got ", given));
}

void check_attention(const Program& program, const Node& node) {
  const auto heads = static_cast<std::size_t>(node.attribute("num_heads"));
  const auto kv_heads = static_cast<std::size_t>(node.attribute("num_kv_heads"));
  const auto size = static_cast<std::size_t>(node.attribute("head_size"));
  const Cache& cache = program.caches[node.cache];
  if (heads % kv_heads != 0)
    throw ValueError(text(node.where(), ": num_heads must be a multiple of num_kv_heads, got ",
                          heads, " and ", kv_heads));
  require(node, "columns of qkv", program.values[node.inputs[0]].columns,
          size_product(node.where(), heads + 2 * kv_heads, size));
  require(node, "columns of the output", program.values[node.output].columns, heads * size);
  require(node, "num_kv_heads of the cache", cache.num_kv_heads, kv_heads);
  require(node, "head_size of the cache", cache.head_size, size);
  for (std::size_t norm : {2, 3})
    if (!node.weights[norm].empty())
      require(node, "the length of a norm's weight", program.tensors[node.weights[norm][0]].columns,
              size);
  if (node.weights[0].empty() != node.weights[1].empty())
    throw ValueError(text(node.where(), ": cos and sin must both be given, or neither"));
  if (node.weights[0].empty()) return;
  const Tensor& cos = program.tensors[node.weights[0][0]];
  if (2 * cos.columns > size || cos.rows < program.limits.max_seq_length)
    throw ValueError(text(node.where(), ": cos and sin must have up to ", size / 2,
                          " columns and a row for each of the ", program.limits.max_seq_length,
                          " positions, got ", cos.rows, " x ", cos.columns));
}

NodeKind with_cache(NodeKind kind, void (*check)(const Program&, const Node&)) {
  kind.has_cache = true;
  kind.check = check;
  return kind;
}

// Sorted by name.
const std::vector<NodeKind>& kinds() {
  static const std::vector<NodeKind> kinds{
      {"add", {{"a", "H"}, {"b", "H"}}, {"H"}},
      {"allreduce", {{"x", "H"}}, {"H"}},
      {"argmax", {{"x", ""}}, {"1", true}},
      with_cache({"attention",
                  {{"qkv", ""}},
                  {""},
                  {{"cos", WeightForm::kTable, "L", "A", true},
                   {"sin", WeightForm::kTable, "L", "A", true},
                   {"q_norm", WeightForm::kVector, "", "", true},
                   {"k_norm", WeightForm::kVector, "", "", true}},
                  {integer("num_heads", 1), integer("num_kv_heads", 1), integer("head_size", 2),
                   number("scale"), integer("window", 0), number("soft_cap", 0),
                   choice("rotation", {"halves", "interleaved"}), number("eps", 0)}},
                 check_attention),
      {"embed", {{"tokens", "1", false, true}}, {"H"}, {{"weight", WeightForm::kRows, "", "H"}}},
      {"gelu_mul", {{"x", "2F"}}, {"F"}, {}, {choice("approximate", {"tanh", "none"})}},
      {"layer_norm",
       {{"x", "H"}},
       {"H"},
       {{"weight", WeightForm::kVector, "H", ""}, {"bias", WeightForm::kVector, "H", "", true}},
       {number("eps", 0)}},
      {"linear",
       {{"x", "K"}, {"residual", "N", true}},
       {"N"},
       {{"weight", WeightForm::kMatrices, "N", "K"}, {"bias", WeightForm::kBiases, "N", "", true}}},
      {"rms_norm",
       {{"x", "H"}},
       {"H"},
       {{"weight", WeightForm::kVector, "H", ""}},
       {number("eps", 0)}},
      {"rms_norm_linear",
       {{"x", "K"}},
       {"N"},
       {{"norm", WeightForm::kVector, "K", ""},
        {"weight", WeightForm::kMatrices, "N", "K"},
        {"bias", WeightForm::kBiases, "N", "", true}},
       {number("eps", 0)}},
      {"sample", {{"x", ""}}, {"1", true}, {}, {}, false, false, true},
      {"scale", {{"x", "H"}}, {"H"}, {}, {number("factor")}},
      {"select", {{"x", "H"}}, {"H"}, {}, {}, true},
      {"silu_mul", {{"x", "2F"}}, {"F"}},
      {"silu_mul_linear_with_residual",
       {{"x", "2F"}, {"residual", "N"}},
       {"N"},
       {{"weight", WeightForm::kMatrices, "N", "F"}, {"bias", WeightForm::kBiases, "N", "", true}}},
      {"soft_cap", {{"x", "H"}}, {"H"}, {}, {number("cap", 0x1p-20)}}};
  return kinds;
}

}  // namespace

const NodeKind* find_node_kind(const std::string& name) {
  for (const NodeKind& kind : kinds())
    if (name == kind.name) return &kind;
  return nullptr;
}

std::string node_kind_names() {
  std::string names;
  for (const NodeKind& kind : kinds())
    names += (names.empty() ? "" : ", ") + std::string(kind.name);
  return names;
}

}  // namespace tensor_ops::decode
