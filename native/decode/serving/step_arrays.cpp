#include "decode/serving/step_arrays.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <type_traits>

#include "declaration/errors.h"
#include "decode/program/node_kind.h"
#include "decode/program/pieces.h"
#include "decode/program/sizes.h"

namespace tensor_ops::decode {
namespace {

using Type = StepArray::Type;

void require_below(const char* what, std::int64_t given, std::size_t end) {
  if (given < 0 || given >= static_cast<std::int64_t>(end))
    throw ValueError(text("each ", what, " must be from 0 to ", end - 1, ", got ", given));
}

Type type_of(std::int32_t* Step::*) { return Type::kInt32; }
Type type_of(float* Step::*) { return Type::kFloat32; }
Type type_of(std::uint64_t* Step::*) { return Type::kUint64; }

// A number as messages show it: negative if the caller gave a negative one.
std::int64_t as_given(std::size_t number) { return static_cast<std::int64_t>(number); }

}  // namespace

std::size_t StepArray::bytes() const {
  return rows * std::max<std::size_t>(columns, 1) * (type == Type::kUint64 ? 8 : 4);
}

StepArrays::StepArrays(const Program& program)
    : limits_(program.limits), num_words_(vocabulary_size(program)), num_logits_(INT32_MAX) {
  for_step_arrays(limits_,
                  [this](const char* name, auto array, std::size_t rows, std::size_t columns = 0) {
                    add(name, type_of(array), rows, columns);
                  });
  for (std::size_t output : program.outputs) {
    const Value& value = program.values[output];
    add(value.name, value.is_int32 ? Type::kInt32 : Type::kFloat32, limits_.rows(value.rows),
        value.columns);
  }
  bool reads_all = false;
  for (const Node& node : program.nodes) {
    if (node.kind->draws()) {
      has_samples_ = true;
      num_logits_ = std::min(num_logits_, program.values[node.inputs[0]].columns);
    }
    has_states_ |= node.cache != kAbsent && program.caches[node.cache].form == CacheForm::kState;
    if (node.cache == kAbsent || !program.caches[node.cache].is_paged) continue;
    reads_pages_ = true;
    const std::size_t window = node.window();
    reads_all |= window == 0;
    longest_window_ = std::max(longest_window_, window);
  }
  if (reads_all) longest_window_ = 0;
}

void StepArrays::add(const std::string& name, Type type, std::size_t rows, std::size_t columns) {
  size_product(name, rows, std::max<std::size_t>(columns, 1), std::size_t{8});
  arrays_.push_back({name, type, rows, columns, bytes_});
  add_size("arrays", bytes_, aligned(arrays_.back().bytes()));
}

void StepArrays::allocate() {
  const std::shared_ptr<void> zeros(std::calloc(1, bytes_ + aligned(1)), std::free);
  if (!zeros)
    throw MemoryError(
        text("compile_program: no memory for the arrays of a step: ", bytes_, " bytes"));
  const auto first = aligned(reinterpret_cast<std::uintptr_t>(zeros.get()));
  memory_ = {zeros, reinterpret_cast<unsigned char*>(first)};
  const Step all = step();
  std::fill_n(all.top_p, limits_.max_requests, 1.0f);
  std::fill_n(all.state_before, limits_.max_tokens, -1);
  std::fill_n(all.state_after, limits_.max_tokens, -1);
  next_position_.resize(limits_.max_requests);
}

unsigned char* StepArrays::value(const std::string& name) const {
  const auto is_it = [&](const StepArray& array) { return array.name == name; };
  return memory_.get() + std::find_if(arrays_.begin(), arrays_.end(), is_it)->offset;
}

Step StepArrays::step() const {
  Step step{};
  for_step_arrays(limits_, [&](const char* name, auto array, auto...) {
    step.*array = reinterpret_cast<std::remove_reference_t<decltype(step.*array)>>(value(name));
  });
  step.pages_per_request = limits_.pages_per_request();
  step.edits_per_request = limits_.edits_per_request();
  return step;
}

void StepArrays::check(const Step& step) {
  const std::size_t most_selected = std::min(step.num_tokens, limits_.max_selected);
  if (step.num_tokens < 1 || step.num_tokens > limits_.max_tokens)
    throw ValueError(text("num_tokens must be from 1 to ", limits_.max_tokens, ", got ",
                          as_given(step.num_tokens)));
  if (step.num_selected > most_selected)
    throw ValueError(text("num_selected must be from 0 to ", most_selected, ", got ",
                          as_given(step.num_selected)));
  for (std::size_t j = 0; j < step.num_selected; ++j) {
    require_below("index in selected", step.selected[j], step.num_tokens);
    if (j > 0 && step.selected[j] <= step.selected[j - 1])
      throw ValueError(text("the indices in selected must ascend, got ", step.selected[j],
                            " after ", step.selected[j - 1]));
  }
  check_tokens(step);
  if (has_states_) check_states(step);
  if (reads_pages_) check_pages(step);
  if (has_samples_) check_sampling(step);
}

void StepArrays::check_tokens(const Step& step) {
  std::fill(next_position_.begin(), next_position_.end(), -1);
  for (std::size_t i = 0; i < step.num_tokens; ++i) {
    require_below("token", step.tokens[i], num_words_);
    require_below("position", step.positions[i], limits_.max_seq_length);
    require_below("slot", step.slots[i], limits_.max_requests);
    std::int32_t& next = next_position_[static_cast<std::size_t>(step.slots[i])];
    if (next >= 0 && step.positions[i] != next)
      throw ValueError(text("the positions of slot ", step.slots[i],
                            " must ascend one by one, got ", step.positions[i], " after ",
                            next - 1));
    next = step.positions[i] + 1;
  }
}

void StepArrays::check_states(const Step& step) const {
  const auto require = [&](const char* name, std::int32_t given) {
    if (given < -1 || given >= static_cast<std::int64_t>(limits_.num_states()))
      throw ValueError(
          text("each ", name, " must be from -1 to ", limits_.num_states() - 1, ", got ", given));
  };
  for (std::size_t i = 0; i < step.num_tokens; ++i) {
    require("state_before", step.state_before[i]);
    require("state_after", step.state_after[i]);
  }
}

// Only pages that are read are checked: those before every window may have been freed.
void StepArrays::check_pages(const Step& step) const {
  for (std::size_t i = 0; i < step.num_tokens; ++i) {
    const auto slot = static_cast<std::size_t>(step.slots[i]);
    const auto position = static_cast<std::size_t>(step.positions[i]);
    const bool is_cut = longest_window_ > 0 && position + 1 > longest_window_;
    // After the first token of a slot, each token reads at most one page more: its own.
    const bool is_first = i == 0 || step.slots[i - 1] != step.slots[i];
    const std::size_t begin = !is_first ? position : is_cut ? position + 1 - longest_window_ : 0;
    for (std::size_t page = begin / limits_.page_size; page <= position / limits_.page_size; ++page)
      check_page(step, slot, page);
  }
}

void StepArrays::check_page(const Step& step, std::size_t slot, std::size_t page) const {
  const std::int32_t given = step.page_table[slot * step.pages_per_request + page];
  if (given < 0 || static_cast<std::size_t>(given) >= limits_.num_pages)
    throw ValueError(text("page_table[", slot, ", ", page, "] must be from 0 to ",
                          limits_.num_pages - 1, ", got ", given));
}

void StepArrays::check_steps(const Step& step, std::size_t num_steps) const {
  if (num_steps < 1 || num_steps > limits_.max_seq_length)
    throw ValueError(text("num_steps must be from 1 to ", limits_.max_seq_length, ", got ",
                          as_given(num_steps)));
  for (std::size_t i = 0; i < step.num_tokens; ++i) {
    const auto slot = static_cast<std::size_t>(step.slots[i]);
    const auto position = static_cast<std::size_t>(step.positions[i]);
    if (next_position_[slot] != step.positions[i] + 1)
      throw ValueError(text("each slot must have one token, got several of slot ", slot));
    const std::size_t last = position + num_steps - 1;
    if (last >= limits_.max_seq_length)
      throw ValueError(text("positions must stay below ", limits_.max_seq_length, ", but slot ",
                            slot, " comes to ", last));
    if (!reads_pages_) continue;
    for (std::size_t page = position / limits_.page_size; page <= last / limits_.page_size; ++page)
      check_page(step, slot, page);
  }
}

bool StepArrays::is_word(std::int32_t token) const {
  return token >= 0 && static_cast<std::size_t>(token) < num_words_;
}

void StepArrays::check_sampling(const Step& step) const {
  for (std::size_t i = 0; i < step.num_tokens; ++i) {
    const std::int32_t slot = step.slots[i];
    const auto require = [slot](const char* name, auto given, bool is_valid, const char* expected) {
      if (!is_valid)
        throw ValueError(text(name, "[", slot, "] must be ", expected, ", got ", given));
    };
    const float temperature = step.temperature[slot], top_p = step.top_p[slot],
                min_p = step.min_p[slot];
    require("temperature", temperature, temperature >= 0 && std::isfinite(temperature),
            "finite and at least 0");
    require("top_p", top_p, top_p >= 0 && top_p <= 1, "from 0 to 1");
    require("min_p", min_p, min_p >= 0 && min_p <= 1, "from 0 to 1");
    require("top_k", step.top_k[slot], step.top_k[slot] >= 0, "at least 0");
    if (i == 0 || step.slots[i - 1] != slot) check_edits(step, static_cast<std::size_t>(slot));
  }
}

void StepArrays::check_edits(const Step& step, std::size_t slot) const {
  const std::int32_t count = step.num_edits[slot];
  if (count < 0 || static_cast<std::size_t>(count) > step.edits_per_request)
    throw ValueError(
        text("num_edits[", slot, "] must be from 0 to ", step.edits_per_request, ", got ", count));
  const std::size_t first = slot * step.edits_per_request;
  for (std::size_t e = 0; e < static_cast<std::size_t>(count); ++e) {
    const auto refuse = [slot, e](const char* name, auto given, const auto&... expected) {
      throw ValueError(text(name, "[", slot, ", ", e, "] must be ", expected..., ", got ", given));
    };
    const std::int32_t token = step.edited_tokens[first + e];
    const float bias = step.edit_biases[first + e], penalty = step.edit_penalties[first + e];
    if (token < 0 || static_cast<std::size_t>(token) >= num_logits_)
      refuse("edited_tokens", token, "from 0 to ", num_logits_ - 1);
    if (!(bias < INFINITY)) refuse("edit_biases", bias, "a number or minus infinity");
    if (!(penalty > 0 && penalty < INFINITY))
      refuse("edit_penalties", penalty, "finite and above 0");
  }
}

}  // namespace tensor_ops::decode
