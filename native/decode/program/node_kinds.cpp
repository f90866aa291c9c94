// The kinds of nodes. Written by tools/node_kinds.py:
// change tensor_ops_decode/nodes and run that instead of changing this file.

#include "decode/program/node_kind.h"
#include "decode/program/node_slots.h"

// clang-format off
namespace tensor_ops::decode {

static_assert(sizeof(AllgatherNode::Attributes) == 1 * sizeof(std::int64_t));
static_assert(sizeof(AttentionNode::Attributes) == 8 * sizeof(std::int64_t));
static_assert(sizeof(GeluMulNode::Attributes) == 1 * sizeof(std::int64_t));
static_assert(sizeof(LayerNormNode::Attributes) == 1 * sizeof(std::int64_t));
static_assert(sizeof(QkNormNode::Attributes) == 1 * sizeof(std::int64_t));
static_assert(sizeof(RmsNormNode::Attributes) == 1 * sizeof(std::int64_t));
static_assert(sizeof(ScaleNode::Attributes) == 1 * sizeof(std::int64_t));
static_assert(sizeof(SoftCapNode::Attributes) == 1 * sizeof(std::int64_t));

const std::vector<NodeKind>& node_kinds() {
  static const std::vector<NodeKind> kinds{
    {"add", kSum,
     {{"a", "H"},
      {"b", "H"}},
     {{"output", "H"}}},
    {"allgather", kExchanges,
     {{"x", "K"}},
     {{"output", "C"}},
     {},
     {{"num_columns", AttributeType::kInteger, "C", 1.0}},
     {},
     {{"K", Relation::kAtMost, "C"}}},
    {"allreduce", kExchanges,
     {{"x", "H"}},
     {{"output", "H"}}},
    {"argmax", kNoTraits,
     {{"x", ""}},
     {{"output", "1", Element::kInt32}}},
    {"attention", kNoTraits,
     {{"qkv", "HD+2GD"}},
     {{"output", "HD"}},
     {{"cos", WeightForm::kTable, Need::kOptional, "", "L", "A"},
      {"sin", WeightForm::kTable, Need::kOptional, "", "L", "A"},
      {"q_norm", WeightForm::kVector, Need::kOptional, "", "D"},
      {"k_norm", WeightForm::kVector, Need::kOptional, "", "D"},
      {"query_scale", WeightForm::kTable, Need::kOptional, "", "L", "1"}},
     {{"num_heads", AttributeType::kInteger, "H", 1.0},
      {"num_kv_heads", AttributeType::kInteger, "G", 1.0},
      {"head_size", AttributeType::kInteger, "D", 2.0},
      {"scale", AttributeType::kNumber},
      {"window", AttributeType::kInteger, "", 0.0},
      {"soft_cap", AttributeType::kNumber, "", 0.0},
      {"rotation", AttributeType::kChoice, "", kNoLeast, {"halves", "interleaved"}},
      {"eps", AttributeType::kNumber, "", 0.0}},
     {CacheForm::kKeysAndValues, {"G", "D", "D"}, "window"},
     {{"H", Relation::kMultipleOf, "G"},
      {"L", Relation::kAtLeast, "P"},
      {"2A", Relation::kAtMost, "D"}},
     {{"cos", "sin"}}},
    {"embed", kNoTraits,
     {{"tokens", "1", Element::kInt32, "V"}},
     {{"output", "H"}},
     {{"weight", WeightForm::kLookup, Need::kRequired, "tokens", "V", "H"}}},
    {"gelu_mul", kGate,
     {{"x", "2F"}},
     {{"output", "F"}},
     {},
     {{"approximate", AttributeType::kChoice, "", kNoLeast, {"tanh", "none"}}}},
    {"layer_norm", kNorm,
     {{"x", "H"}},
     {{"output", "H"}},
     {{"weight", WeightForm::kVector, Need::kRequired, "", "H"},
      {"bias", WeightForm::kVector, Need::kOptional, "", "H"}},
     {{"eps", AttributeType::kNumber, "", 0.0}}},
    {"linear", kProduct,
     {{"x", "K"}},
     {{"output", "N"}},
     {{"weight", WeightForm::kMatrices, Need::kRequired, "", "N", "K"},
      {"bias", WeightForm::kBiases, Need::kOptional, "weight", "N"}}},
    {"qk_norm", kNoTraits,
     {{"qkv", "H"}},
     {{"output", "H"}},
     {{"q_norm", WeightForm::kVector, Need::kRequired, "", "Q"},
      {"k_norm", WeightForm::kVector, Need::kRequired, "", "K"}},
     {{"eps", AttributeType::kNumber, "", 0.0}},
     {},
     {{"Q+K", Relation::kAtMost, "H"}}},
    {"rms_norm", kNorm,
     {{"x", "H"}},
     {{"output", "H"}},
     {{"weight", WeightForm::kVector, Need::kRequired, "", "H"}},
     {{"eps", AttributeType::kNumber, "", 0.0}}},
    {"sample", kDraws,
     {{"x", ""}},
     {{"output", "1", Element::kInt32}}},
    {"scale", kElementwise,
     {{"x", "H"}},
     {{"output", "H"}},
     {},
     {{"factor", AttributeType::kNumber}}},
    {"select", kSelects,
     {{"x", "H"}},
     {{"output", "H"}}},
    {"silu_mul", kGate,
     {{"x", "2F"}},
     {{"output", "F"}}},
    {"soft_cap", kElementwise,
     {{"x", "H"}},
     {{"output", "H"}},
     {},
     {{"cap", AttributeType::kNumber, "", 9.5367431640625e-07}}},
  };
  return kinds;
}

}  // namespace tensor_ops::decode
