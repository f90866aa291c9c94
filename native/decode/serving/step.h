// What a caller has filled in for a step, checked: plain pointers and sizes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tensor_ops::decode {

struct Step {
  const std::int32_t *tokens, *positions, *slots;  // of each token
  const std::int32_t* selected;                    // indices of tokens
  const std::int32_t* page_table;                  // of each slot, so many pages
  std::size_t pages_per_request;
  const float *temperature, *top_p, *min_p;  // of each slot
  const std::int32_t* top_k;
  const std::uint64_t* seed;
  // The logits of each slot that are changed before a token is chosen: how many, and in rows of
  // `edits_per_request` which and how.
  const std::int32_t *num_edits, *edited_tokens;
  const float *edit_biases, *edit_penalties;
  std::size_t edits_per_request;
  std::size_t num_tokens, num_selected;
  std::uint32_t number;  // another one in each step, for the executor's own use
};

}  // namespace tensor_ops::decode
