// gated_delta: linear attention whose state forgets, and corrects what it says of a key.
//
// The state of a request is a matrix of key_size by value_size for each value head. Threads divide
// the value heads, and take the tokens in their order, so that a token has the bits that it has
// alone: each column of a matrix is computed by itself, by the same operations.
#include "decode/executor/node.h"
#include "decode/kernels/sigmoid_of.h"
#include "decode/kernels/softplus.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using decode::GatedDeltaNode;

// Of lengths of queries and keys.
constexpr float kDeltaEps = 1e-6f;
// Tokens of one request are computed so many at a time, with so many vectors of columns of the
// state in a near cache. For fewer tokens than kFewestTogether the state stays where it is, whose
// rows are read as a whole: so many vectors as the sums have registers for.
constexpr std::size_t kTogether = 32, kFewestTogether = 4, kNearVectors = 2,
                      kRowVectors = kVectorBytes == 64 ? 8 : 4;

struct DeltaScratch {
  decode::Scratch bytes;
  decode::Piece<float> queries, keys, factors, state;
  explicit DeltaScratch(const GatedDeltaNode::Attributes& of) {
    const auto size = static_cast<std::size_t>(of.key_size);
    decode::Pieces own;
    queries = own.add<float>(kTogether * size);
    keys = own.add<float>(kTogether * size);
    factors = own.add<float>(2 * kTogether);
    state = own.add<float>(size * kNearVectors * kLanes<float>);
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

TENSOR_OPS_INLINE Floats multiply_add(Floats a, float b, Floats c) {
  return fma(a, splat<Floats>(b), c);
}
TENSOR_OPS_INLINE float multiply_add(float a, float b, float c) { return a * b + c; }

// What a token has for one head.
struct DeltaToken {
  const float *query, *key;
  float beta, decay;  // how much it corrects, and how much of the state it keeps
  const float* value;
  float* out;
};

// Some rows of a state, `stride` floats apart.
struct StateRows {
  const float* before;
  float* after;  // may be the same
  std::size_t before_stride, after_stride;
};

// A token on some columns of a state, V by V.
template <class V, std::size_t count>
TENSOR_OPS_INLINE void step_columns(const DeltaToken& token, std::size_t keys,
                                    const StateRows& rows, std::size_t column) {
  constexpr std::size_t kWidth = sizeof(V) / sizeof(float);
  V delta[count] = {}, sum[count] = {};
  for (std::size_t k = 0; k < keys; ++k)
    for (std::size_t j = 0; j < count; ++j) {
      const V row = load_vector<V>(rows.before + k * rows.before_stride + j * kWidth) * token.decay;
      store_vector(rows.after + k * rows.after_stride + j * kWidth, row);
      delta[j] = multiply_add(row, token.key[k], delta[j]);
    }
  for (std::size_t j = 0; j < count; ++j)
    delta[j] = (load_vector<V>(token.value + column + j * kWidth) - delta[j]) * token.beta;
  for (std::size_t k = 0; k < keys; ++k)
    for (std::size_t j = 0; j < count; ++j) {
      float* const at = rows.after + k * rows.after_stride + j * kWidth;
      const V row = multiply_add(delta[j], token.key[k], load_vector<V>(at));
      store_vector(at, row);
      sum[j] = multiply_add(row, token.query[k], sum[j]);
    }
  for (std::size_t j = 0; j < count; ++j) store_vector(token.out + column + j * kWidth, sum[j]);
}

// Calls visit(V{}, count, column) for groups of columns: of `most` vectors, of one, and of one
// element.
template <std::size_t most, class Visit>
TENSOR_OPS_INLINE void for_column_groups(std::size_t columns, Visit visit) {
  constexpr std::size_t kWidth = kLanes<float>;
  std::size_t c = 0;
  for (; c + most * kWidth <= columns; c += most * kWidth)
    visit(Floats{}, std::integral_constant<std::size_t, most>{}, c);
  for (; c + kWidth <= columns; c += kWidth)
    visit(Floats{}, std::integral_constant<std::size_t, 1>{}, c);
  for (; c < columns; ++c) visit(float{}, std::integral_constant<std::size_t, 1>{}, c);
}

// The value heads of one thread, one after another.
class DeltaHead {
 public:
  DeltaHead(const decode::Share& share, const GatedDeltaNode::Attributes& of, std::size_t head)
      : share_(share),
        head_(head),
        keys_(static_cast<std::size_t>(of.key_size)),
        values_(static_cast<std::size_t>(of.value_size)),
        heads_(static_cast<std::size_t>(of.value_heads)),
        key_heads_(static_cast<std::size_t>(of.key_heads)),
        key_head_(of.order == GatedDeltaNode::Order::kGrouped ? head / (heads_ / key_heads_)
                                                              : head % key_heads_),
        scratch_(of) {}

  void run() {
    for (std::size_t first = 0; first < share_.rows;) {
      const std::size_t end = end_of_run(first);
      for (std::size_t t = first; t < end; ++t) prepare(t, t - first);
      if (end - first >= kFewestTogether) {
        run_together(first, end - first);
      } else {
        for (std::size_t t = first; t < end; ++t) run_alone(t, t - first);
      }
      first = end;
    }
  }

 private:
  // Where tokens end that go on from one another and leave the same state.
  std::size_t end_of_run(std::size_t first) const {
    const float* const state = share_.state_after(first);
    std::size_t t = first + 1;
    while (t < share_.rows && t - first < kTogether && share_.state_before(t) == state &&
           share_.state_after(t) == state)
      ++t;
    return t;
  }

  float* queries() const { return scratch_.queries.in(share_.own); }
  float* keys() const { return scratch_.keys.in(share_.own); }
  float* factors() const { return scratch_.factors.in(share_.own); }

  void prepare(std::size_t t, std::size_t index) const {
    const float* const qkv = share_.in(0) + t * share_.input_columns[0];
    const float* const gates = share_.in(1) + t * share_.input_columns[1];
    const float query_factor = 1 / __builtin_sqrtf(static_cast<float>(keys_));
    normalise(qkv + key_head_ * keys_, keys_, query_factor, queries() + index * keys_);
    normalise(qkv + (key_heads_ + key_head_) * keys_, keys_, 1, keys() + index * keys_);
    const float rate = share_.parameters[GatedDeltaNode::kRate][head_];
    const float bias = share_.parameters[GatedDeltaNode::kRateBias][head_];
    factors()[2 * index] = sigmoid(gates[head_]);
    factors()[2 * index + 1] = __builtin_expf(rate * softplus(gates[heads_ + head_] + bias));
  }

  DeltaToken token(std::size_t t, std::size_t index) const {
    const float* const qkv = share_.in(0) + t * share_.input_columns[0];
    return {queries() + index * keys_,
            keys() + index * keys_,
            factors()[2 * index],
            factors()[2 * index + 1],
            qkv + 2 * key_heads_ * keys_ + head_ * values_,
            share_.out() + t * share_.columns + head_ * values_};
  }

  void run_alone(std::size_t t, std::size_t index) const {
    float* const after = share_.state_after(t) + head_ * keys_ * values_;
    const float* before = share_.state_before(t);
    if (before) {
      before += head_ * keys_ * values_;
    } else {
      __builtin_memset(after, 0, keys_ * values_ * sizeof(float));
      before = after;
    }
    const DeltaToken one = token(t, index);
    for_column_groups<kRowVectors>(values_,
                                   [&](auto v, auto count, std::size_t c) TENSOR_OPS_INLINE_LAMBDA {
                                     step_columns<decltype(v), decltype(count)::value>(
                                         one, keys_, {before + c, after + c, values_, values_}, c);
                                   });
  }

  // Each group of columns is copied to a near cache, where all tokens find it.
  void run_together(std::size_t first, std::size_t tokens) const {
    const float* before = share_.state_before(first);
    float* const after = share_.state_after(first) + head_ * keys_ * values_;
    if (before) before += head_ * keys_ * values_;
    float* const state = scratch_.state.in(share_.own);
    for_column_groups<kNearVectors>(values_, [&](auto v, auto count,
                                                 std::size_t c) TENSOR_OPS_INLINE_LAMBDA {
      using V = decltype(v);
      constexpr std::size_t kCount = decltype(count)::value;
      constexpr std::size_t kColumns = kCount * sizeof(V) / sizeof(float);
      for (std::size_t k = 0; k < keys_; ++k)
        if (before) {
          __builtin_memcpy(state + k * kColumns, before + k * values_ + c,
                           kColumns * sizeof(float));
        } else {
          __builtin_memset(state + k * kColumns, 0, kColumns * sizeof(float));
        }
      for (std::size_t t = 0; t < tokens; ++t)
        step_columns<V, kCount>(token(first + t, t), keys_, {state, state, kColumns, kColumns}, c);
      for (std::size_t k = 0; k < keys_; ++k)
        __builtin_memcpy(after + k * values_ + c, state + k * kColumns, kColumns * sizeof(float));
    });
  }

  const decode::Share& share_;
  const std::size_t head_, keys_, values_, heads_, key_heads_, key_head_;
  const DeltaScratch scratch_;
};

void run_gated_delta(const decode::Share& share) {
  const auto of = share.attributes_as<GatedDeltaNode::Attributes>();
  const auto heads = static_cast<std::size_t>(of.value_heads);
  for (std::size_t h = share.begin_of(heads); h < share.end_of(heads); ++h)
    DeltaHead(share, of, h).run();
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(gated_delta, run_gated_delta, nullptr, true, scratch_of_delta)
