// The slots of each kind of node, and its attributes. Written by tools/node_kinds.py:
// change tensor_ops_decode/nodes and run that instead of changing this file.
#pragma once

#include <cstddef>
#include <cstdint>

// clang-format off
namespace tensor_ops::decode {

struct AddNode {
  enum Input : std::size_t { kA, kB };
  enum Output : std::size_t { kOutput };
};

struct AllgatherNode {
  enum Input : std::size_t { kX };
  enum Output : std::size_t { kOutput };
  struct Attributes {
    std::int64_t num_columns;
  };
};

struct AllreduceNode {
  enum Input : std::size_t { kX };
  enum Output : std::size_t { kOutput };
};

struct ArgmaxNode {
  enum Input : std::size_t { kX };
  enum Output : std::size_t { kOutput };
};

struct AttentionNode {
  enum Input : std::size_t { kQkv };
  enum Output : std::size_t { kOutput };
  enum Weight : std::size_t { kCos, kSin, kQNorm, kQueryScale, kSinks, kKNorm, kVNorm };
  enum class Rotation : std::int64_t { kHalves, kInterleaved };
  struct Attributes {
    std::int64_t num_heads;
    std::int64_t num_kv_heads;
    std::int64_t head_size;
    double scale;
    std::int64_t window;
    double soft_cap;
    Rotation rotation;
    double eps;
  };
};

struct CombineNode {
  enum Input : std::size_t { kWeights, kX };
  enum Output : std::size_t { kOutput };
};

struct EmbedNode {
  enum Input : std::size_t { kTokens };
  enum Output : std::size_t { kOutput };
  enum Weight : std::size_t { kWeight };
};

struct ExpertLinearNode {
  enum Input : std::size_t { kX, kChosen };
  enum Output : std::size_t { kOutput };
  enum Weight : std::size_t { kWeight, kBias };
  struct Attributes {
    std::int64_t num_experts;
    std::int64_t input_parts;
    std::int64_t output_parts;
  };
};

struct GatedDeltaNode {
  enum Input : std::size_t { kQkv, kGates };
  enum Output : std::size_t { kOutput };
  enum Weight : std::size_t { kRate, kRateBias };
  enum class Order : std::int64_t { kGrouped, kTiled };
  struct Attributes {
    std::int64_t key_heads;
    std::int64_t value_heads;
    std::int64_t key_size;
    std::int64_t value_size;
    Order order;
  };
};

struct GatedGroupNormNode {
  enum Input : std::size_t { kX, kGate };
  enum Output : std::size_t { kOutput };
  enum Weight : std::size_t { kWeight };
  struct Attributes {
    std::int64_t group_size;
    double eps;
  };
};

struct GatedNormNode {
  enum Input : std::size_t { kX, kGate };
  enum Output : std::size_t { kOutput };
  enum Weight : std::size_t { kWeight };
  struct Attributes {
    double eps;
  };
};

struct GatedShortConvNode {
  enum Input : std::size_t { kX };
  enum Output : std::size_t { kOutput };
  enum Weight : std::size_t { kWeight, kBias };
  struct Attributes {
    std::int64_t kept;
  };
};

struct GeluMulNode {
  enum Input : std::size_t { kX };
  enum Output : std::size_t { kOutput };
  enum class Approximate : std::int64_t { kTanh, kNone };
  struct Attributes {
    Approximate approximate;
  };
};

struct GeluMulPartNode {
  enum Input : std::size_t { kGate, kX };
  enum Output : std::size_t { kOutput };
  enum class Approximate : std::int64_t { kTanh, kNone };
  struct Attributes {
    std::int64_t part;
    Approximate approximate;
  };
};

struct GroupRmsNormNode {
  enum Input : std::size_t { kX };
  enum Output : std::size_t { kOutput };
  enum Weight : std::size_t { kWeight };
  struct Attributes {
    double eps;
  };
};

struct HeadLinearNode {
  enum Input : std::size_t { kX };
  enum Output : std::size_t { kOutput };
  enum Weight : std::size_t { kWeight };
  struct Attributes {
    std::int64_t num_heads;
  };
};

struct LatentAttentionNode {
  enum Input : std::size_t { kAbsorbed, kQuery, kKv };
  enum Output : std::size_t { kOutput };
  enum Weight : std::size_t { kNorm, kCos, kSin };
  enum class Rotation : std::int64_t { kHalves, kInterleaved };
  struct Attributes {
    std::int64_t num_heads;
    double scale;
    Rotation rotation;
    double eps;
  };
};

struct LayerNormNode {
  enum Input : std::size_t { kX };
  enum Output : std::size_t { kOutput };
  enum Weight : std::size_t { kWeight, kBias };
  struct Attributes {
    double eps;
  };
};

struct LinearNode {
  enum Input : std::size_t { kX };
  enum Output : std::size_t { kOutput };
  enum Weight : std::size_t { kWeight, kBias };
};

struct QkNormNode {
  enum Input : std::size_t { kQkv };
  enum Output : std::size_t { kOutput };
  enum Weight : std::size_t { kQNorm, kKNorm };
  struct Attributes {
    double eps;
  };
};

struct RmsNormNode {
  enum Input : std::size_t { kX };
  enum Output : std::size_t { kOutput };
  enum Weight : std::size_t { kWeight };
  struct Attributes {
    double eps;
  };
};

struct RouteNode {
  enum Input : std::size_t { kX };
  enum Output : std::size_t { kWeights, kChosen };
  enum Weight : std::size_t { kBias, kExpertScale };
  enum class Scoring : std::int64_t { kSoftmax, kSigmoid, kSoftmaxOfChosen };
  enum class Normalise : std::int64_t { kNone, kSum };
  enum class GroupScore : std::int64_t { kSumOfBestTwo, kBest };
  struct Attributes {
    std::int64_t top_k;
    Scoring scoring;
    Normalise normalise;
    double eps;
    double scale;
    std::int64_t groups;
    std::int64_t used_groups;
    GroupScore group_score;
  };
};

struct SampleNode {
  enum Input : std::size_t { kX };
  enum Output : std::size_t { kOutput };
};

struct ScaleNode {
  enum Input : std::size_t { kX };
  enum Output : std::size_t { kOutput };
  struct Attributes {
    double factor;
  };
};

struct SelectNode {
  enum Input : std::size_t { kX };
  enum Output : std::size_t { kOutput };
};

struct SharedAttentionNode {
  enum Input : std::size_t { kQ };
  enum Output : std::size_t { kOutput };
  enum Weight : std::size_t { kCos, kSin, kQNorm, kQueryScale, kSinks };
  enum class Rotation : std::int64_t { kHalves, kInterleaved };
  struct Attributes {
    std::int64_t num_heads;
    std::int64_t num_kv_heads;
    std::int64_t head_size;
    double scale;
    std::int64_t window;
    double soft_cap;
    Rotation rotation;
    double eps;
  };
};

struct ShortConvNode {
  enum Input : std::size_t { kX };
  enum Output : std::size_t { kOutput };
  enum Weight : std::size_t { kWeight, kBias };
  enum class Activation : std::int64_t { kNone, kSilu };
  struct Attributes {
    std::int64_t kept;
    Activation activation;
  };
};

struct SigmoidMulNode {
  enum Input : std::size_t { kX, kGate };
  enum Output : std::size_t { kOutput };
};

struct SiluMulNode {
  enum Input : std::size_t { kX };
  enum Output : std::size_t { kOutput };
};

struct SoftCapNode {
  enum Input : std::size_t { kX };
  enum Output : std::size_t { kOutput };
  struct Attributes {
    double cap;
  };
};

struct SsmNode {
  enum Input : std::size_t { kXbc, kSteps };
  enum Output : std::size_t { kOutput };
  enum Weight : std::size_t { kRate, kStepBias, kSkip };
  struct Attributes {
    std::int64_t num_heads;
    std::int64_t head_size;
    std::int64_t num_groups;
    std::int64_t state_size;
  };
};

struct SwigluClampedNode {
  enum Input : std::size_t { kX };
  enum Output : std::size_t { kOutput };
  struct Attributes {
    double limit;
    double alpha;
  };
};

}  // namespace tensor_ops::decode
