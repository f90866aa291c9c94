// attention: of each query head of a token to the keys of its request up to its own position.
#include "decode/node.h"

#if KERNEL_PASS

#include "decode/kernels/attention.h"
#include "decode/kernels/op_rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using decode::Share;

TENSOR_OPS_INLINE std::size_t aligned_floats(std::size_t count) {
  return (count + kBlock - 1) / kBlock * kBlock;
}

// Normalises and rotates heads of a token into `to`. The norm is parameter 2 or 3.
void prepare_heads(const Share& share, const Sizes& sizes, const float* heads, std::size_t count,
                   std::size_t norm, std::size_t position, float* to) {
  const std::size_t size = sizes.head;
  if (share.parameters[norm])
    run_op(rms_norm_kernels, 0, {{heads, size}, {share.parameters[norm], 0}, {to, size}}, count,
           size, sizes.eps);
  else
    __builtin_memcpy(to, heads, count * size * sizeof(float));
  if (!share.parameters[0]) return;
  const std::size_t angles = share.parameter_columns[0], row = position * angles;
  run_op(rope_kernels, sizes.is_interleaved ? 1 : 0,
         {{to, size}, {share.parameters[0] + row, 0}, {share.parameters[1] + row, 0}, {to, size}},
         count, 2 * angles);
}

template <class Element>
TENSOR_OPS_INLINE HeadCache<Element> head_cache(const Share& share, std::size_t token,
                                                std::size_t head) {
  const auto slot = static_cast<std::size_t>(share.step->slots[token]);
  return {share.cache, share.step->page_table + slot * share.step->pages_per_request, slot, head};
}

template <class Element>
struct Attention {
  // Writes the keys and values of this step to the cache: pairs of a token and a head are divided.
  static void store_all(const Share& share) {
    const Sizes sizes(share.attributes);
    const std::size_t row = share.input_columns[0], size = sizes.head;
    const std::size_t pairs = share.rows * sizes.kv_heads, end = share.end_of(pairs);
    auto* const key = reinterpret_cast<float*>(share.own);
    for (std::size_t pair = share.begin_of(pairs); pair < end; ++pair) {
      const std::size_t token = pair / sizes.kv_heads, head = pair % sizes.kv_heads;
      const auto position = static_cast<std::size_t>(share.step->positions[token]);
      const float* const keys = share.in(0) + token * row + (sizes.heads + head) * size;
      prepare_heads(share, sizes, keys, 1, 3, position, key);
      const auto cache = head_cache<Element>(share, token, head);
      const std::size_t page = position / share.cache.page_size;
      const std::size_t place = position % share.cache.page_size;
      const std::size_t first = place / kBlock * kBlock, width = cache.width(first);
      auto* const to_keys = cache.keys(page) + first * size + (place - first);
      for (std::size_t d = 0; d < size; ++d) to_keys[d * width] = Element::store(key[d]);
      auto* const to_values = cache.values(page) + place * size;
      const float* const values = keys + sizes.kv_heads * size;
      for (std::size_t d = 0; d < size; ++d) to_values[d] = Element::store(values[d]);
    }
  }

  // Query heads are divided: in one piece a thread where there are few pairs of a token and a
  // key/value head, else by pairs in turn, since late positions take longer than early ones.
  static void attend_all(const Share& share) {
    const Sizes sizes(share.attributes);
    const std::size_t group = sizes.heads / sizes.kv_heads, pairs = share.rows * sizes.kv_heads;
    if (pairs >= 4 * share.threads) {
      for (std::size_t pair = share.thread; pair < pairs; pair += share.threads)
        attend_heads(share, sizes, pair / sizes.kv_heads, pair % sizes.kv_heads * group, group);
      return;
    }
    const std::size_t end = share.end_of(share.rows * sizes.heads);
    for (std::size_t i = share.begin_of(share.rows * sizes.heads); i < end;) {
      const std::size_t to_next = group - i % group, left = end - i;
      const std::size_t count = to_next < left ? to_next : left;
      attend_heads(share, sizes, i / sizes.heads, i % sizes.heads, count);
      i += count;
    }
  }

 private:
  // Query heads from `head` on that share keys and values.
  static void attend_heads(const Share& share, const Sizes& sizes, std::size_t token,
                           std::size_t head, std::size_t count) {
    const auto position = static_cast<std::size_t>(share.step->positions[token]);
    const auto cache = head_cache<Element>(share, token, head / (sizes.heads / sizes.kv_heads));
    const float* const heads = share.in(0) + token * share.input_columns[0] + head * sizes.head;
    float* const out = share.out() + token * share.columns + head * sizes.head;
    auto* const q = reinterpret_cast<float*>(share.own);
    float* const scratch = q + aligned_floats(kMostHeads * sizes.head);
    for (std::size_t h = 0; h < count; h += kMostHeads) {
      const std::size_t some = count - h < kMostHeads ? count - h : kMostHeads;
      prepare_heads(share, sizes, heads + h * sizes.head, some, 2, position, q);
      attend<Element, kMostHeads>(cache, sizes, q, some, position, scratch, out + h * sizes.head);
    }
  }
};

void store_all(const Share& share) {
  share.cache.is_half ? Attention<Float16>::store_all(share) : Attention<Float32>::store_all(share);
}

void attend_all(const Share& share) {
  share.cache.is_half ? Attention<Float16>::attend_all(share)
                      : Attention<Float32>::attend_all(share);
}

}  // namespace

EXPORT_NODE(attention, store_all, attend_all)

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

#include "declaration/errors.h"
#include "decode/value_plan.h"

namespace tensor_ops::decode {
namespace {

void require(const Node& node, const std::string& what, std::size_t given, std::size_t expected) {
  if (given != expected)
    throw ValueError(text(node.where(), ": ", what, " must be ", expected, ", got ", given));
}

void check(const Program& program, const Node& node) {
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

// Query heads, a block of keys, and the scores of all positions, for up to four heads; each page
// may end with a block that is not full.
Scratch scratch(const Program& program, const Node& node) {
  constexpr std::size_t kBlock = 16, kMostHeads = 4;
  const bool is_paged = program.caches[node.cache].is_paged;
  const Limits& limits = program.limits;
  const std::size_t page = is_paged ? limits.page_size : limits.max_seq_length;
  const std::size_t positions =
      size_product(node.where(), is_paged ? limits.pages_per_request() : 1,
                   (page + kBlock - 1) / kBlock * kBlock);
  const auto size = static_cast<std::size_t>(node.attribute("head_size"));
  const std::size_t floats =
      aligned(kMostHeads * size * 4) / 4 + kBlock * size + kMostHeads * positions;
  return {aligned(size_product(node.where(), floats, sizeof(float))), 0};
}

}  // namespace

DECLARE_NODE(attention,
             {"attention",
              {{"qkv", ""}},
              {""},
              {{"cos", WeightForm::kTable, "L", "A", true},
               {"sin", WeightForm::kTable, "L", "A", true},
               {"q_norm", WeightForm::kVector, "", "", true},
               {"k_norm", WeightForm::kVector, "", "", true}},
              {integer("num_heads", 1), integer("num_kv_heads", 1), integer("head_size", 2),
               number("scale"), integer("window", 0), number("soft_cap", 0),
               choice("rotation", {"halves", "interleaved"}), number("eps", 0)},
              false,
              true,
              false,
              check,
              scratch})

}  // namespace tensor_ops::decode

#endif
