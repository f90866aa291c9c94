// gated_delta: linear attention whose state forgets, and corrects what it says of a key.
//
// The state of a request is a matrix of key_size by value_size for each value head. Threads divide
// the value heads, and take the tokens in their order, so that a token has the bits that it has
// alone. A row of the state is read twice for a token, the second time from a near cache.
#include "decode/executor/node.h"
#include "decode/kernels/sigmoid_of.h"
#include "decode/kernels/softplus.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using decode::GatedDeltaNode;

// Of lengths of queries and keys.
constexpr float kDeltaEps = 1e-6f;

struct DeltaScratch {
  decode::Scratch bytes;
  decode::Piece<float> query, key, delta;
  explicit DeltaScratch(const GatedDeltaNode::Attributes& of) {
    decode::Pieces own;
    query = own.add<float>(static_cast<std::size_t>(of.key_size));
    key = own.add<float>(static_cast<std::size_t>(of.key_size));
    delta = own.add<float>(static_cast<std::size_t>(of.value_size));
    bytes.own = own.bytes();
  }
};

decode::Scratch scratch_of_delta(const decode::Share& share) {
  return DeltaScratch(share.attributes_as<GatedDeltaNode::Attributes>()).bytes;
}

// x divided by its length, and multiplied by a factor.
void normalise(const float* x, std::size_t n, float factor, float* to) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::size_t i = 0; i < n; ++i) sum += x[i] * x[i];
  const float scale = factor / __builtin_sqrtf(sum + kDeltaEps);
#pragma omp simd
  for (std::size_t i = 0; i < n; ++i) to[i] = x[i] * scale;
}

void run_gated_delta(const decode::Share& share) {
  const auto of = share.attributes_as<GatedDeltaNode::Attributes>();
  const DeltaScratch scratch(of);
  const auto keys = static_cast<std::size_t>(of.key_size),
             values = static_cast<std::size_t>(of.value_size),
             heads = static_cast<std::size_t>(of.value_heads),
             key_heads = static_cast<std::size_t>(of.key_heads);
  const bool is_grouped = of.order == GatedDeltaNode::Order::kGrouped;
  const float* const rate = share.parameters[GatedDeltaNode::kRate];
  const float* const rate_bias = share.parameters[GatedDeltaNode::kRateBias];
  float *const query = scratch.query.in(share.own), *const key = scratch.key.in(share.own),
               *const delta = scratch.delta.in(share.own);
  const float query_factor = 1 / __builtin_sqrtf(static_cast<float>(keys));
  const std::size_t end = share.end_of(heads);
  for (std::size_t h = share.begin_of(heads); h < end; ++h) {
    const std::size_t key_head = is_grouped ? h / (heads / key_heads) : h % key_heads;
    for (std::size_t t = 0; t < share.rows; ++t) {
      const float* const qkv = share.in(0) + t * share.input_columns[0];
      const float* const gates = share.in(1) + t * share.input_columns[1];
      const float* const value = qkv + 2 * key_heads * keys + h * values;
      normalise(qkv + key_head * keys, keys, query_factor, query);
      normalise(qkv + (key_heads + key_head) * keys, keys, 1, key);
      const float beta = sigmoid(gates[h]);
      const float decay = __builtin_expf(rate[h] * softplus(gates[heads + h] + rate_bias[h]));
      float* const state = share.state_after(t) + h * keys * values;
      const float* before = share.state_before(t);
      if (before) {
        before += h * keys * values;
      } else {
        __builtin_memset(state, 0, keys * values * sizeof(float));
        before = state;
      }
      float* const out = share.out() + t * share.columns + h * values;
      __builtin_memset(delta, 0, values * sizeof(float));
      for (std::size_t k = 0; k < keys; ++k) {
        const float* const row_before = before + k * values;
        float* const row = state + k * values;
#pragma omp simd
        for (std::size_t v = 0; v < values; ++v) {
          row[v] = row_before[v] * decay;
          delta[v] += row[v] * key[k];
        }
      }
#pragma omp simd
      for (std::size_t v = 0; v < values; ++v) {
        delta[v] = (value[v] - delta[v]) * beta;
        out[v] = 0;
      }
      for (std::size_t k = 0; k < keys; ++k) {
        float* const row = state + k * values;
#pragma omp simd
        for (std::size_t v = 0; v < values; ++v) {
          row[v] += key[k] * delta[v];
          out[v] += row[v] * query[k];
        }
      }
    }
  }
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(gated_delta, run_gated_delta, nullptr, true, scratch_of_delta)
