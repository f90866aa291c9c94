// Input of a step: the arrays that a caller fills in, as plain pointers, and their sizes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "decode/program/program.h"

namespace tensor_ops::decode {

struct Step {
  std::int32_t *tokens, *positions, *slots;  // of each token
  // The states that each token begins with and leaves; negative: that of its slot.
  std::int32_t *state_before, *state_after;
  std::int32_t* selected;    // indices of tokens
  std::int32_t* page_table;  // of each slot, pages_per_request pages
  std::size_t pages_per_request;
  float *temperature, *top_p, *min_p;  // of each slot
  std::int32_t* top_k;
  std::uint64_t* seed;
  // The logits of each slot that are changed before a token is chosen: how many, and in rows of
  // edits_per_request which and how.
  std::int32_t *num_edits, *edited_tokens;
  float *edit_biases, *edit_penalties;
  std::size_t edits_per_request;
  std::size_t num_tokens, num_selected;
  std::uint32_t number;  // another one in each step, for the executor's own use
  bool is_draft;         // whether the nodes of the draft run, and not those before them
};

// Calls visit(name, member of Step, rows, columns) for the arrays of every step, in their order.
// Without columns an array has one dimension.
template <class Visit>
void for_step_arrays(const Limits& limits, Visit visit) {
  const std::size_t slots = limits.max_requests, edits = limits.edits_per_request();
  visit("tokens", &Step::tokens, limits.max_tokens);
  visit("positions", &Step::positions, limits.max_tokens);
  visit("slots", &Step::slots, limits.max_tokens);
  visit("state_before", &Step::state_before, limits.max_tokens);
  visit("state_after", &Step::state_after, limits.max_tokens);
  visit("selected", &Step::selected, limits.max_selected);
  visit("page_table", &Step::page_table, slots, limits.pages_per_request());
  visit("temperature", &Step::temperature, slots);
  visit("top_p", &Step::top_p, slots);
  visit("min_p", &Step::min_p, slots);
  visit("top_k", &Step::top_k, slots);
  visit("seed", &Step::seed, slots);
  visit("num_edits", &Step::num_edits, slots);
  visit("edited_tokens", &Step::edited_tokens, slots, edits);
  visit("edit_biases", &Step::edit_biases, slots, edits);
  visit("edit_penalties", &Step::edit_penalties, slots, edits);
}

}  // namespace tensor_ops::decode
