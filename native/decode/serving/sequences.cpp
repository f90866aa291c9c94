#include "decode/serving/sequences.h"

#include <algorithm>
#include <utility>

#include "declaration/errors.h"
#include "decode/files/exported_model.h"
#include "decode/program/node_kind.h"

namespace tensor_ops::decode {
namespace {

// The most steps of one call of the executor. The pages for all of them are held beforehand.
constexpr std::size_t kMostStepsAtOnce = 32;
// Attention reads this many positions at once, fastest if their pages have consecutive numbers.
constexpr std::size_t kPositionsTogether = 128;

bool contains(const std::vector<std::int32_t>& tokens, std::int32_t token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

}  // namespace

Sequences::Sequences(Driver& driver, const std::string& logits, std::string tokens)
    : driver_(driver),
      limits_(driver.program().limits),
      step_(driver.arrays().step()),
      longest_(longest_sequence(limits_)),
      tokens_name_(std::move(tokens)) {
  const Program& program = driver.program();
  if (std::min(limits_.max_tokens, limits_.max_selected) < limits_.max_requests)
    throw ValueError(text("sequences need a step with room for a selected token of each of ",
                          limits_.max_requests, " slots, but the program's max_tokens is ",
                          limits_.max_tokens, " and its max_selected ", limits_.max_selected,
                          "; run steps of its arrays instead"));
  for (const Cache& cache : program.caches) has_states_ |= cache.form == CacheForm::kState;
  const Value &chosen = *find_output(program, tokens_name_), &row = *find_output(program, logits);
  const StepArrays& arrays = driver.arrays();
  chosen_ = reinterpret_cast<const std::int32_t*>(arrays.value(tokens_name_));
  chosen_by_token_ = chosen.rows == Rows::kTokens;
  logits_ = reinterpret_cast<const float*>(arrays.value(logits));
  logits_by_token_ = row.rows == Rows::kTokens;
  num_logits_ = row.columns;
  for (const Node& node : program.nodes) has_samples_ |= node.kind->draws();
  for (std::size_t slot = limits_.max_requests; slot-- > 0;) free_slots_.push_back(slot);
  // The page table has no room for more.
  num_free_pages_ = std::min(limits_.num_pages, limits_.max_requests * limits_.pages_per_request());
  is_free_.assign(num_free_pages_, true);
  // Groups are smaller in small caches: at most a 32nd of all pages waits for its sequences.
  const std::size_t most = std::min(kPositionsTogether / limits_.page_size,
                                    num_free_pages_ / (32 * limits_.max_requests));
  while (2 * group_size_ <= most) group_size_ *= 2;
}

std::int64_t Sequences::open() {
  if (free_slots_.empty())
    throw ValueError(text("open_sequence: the model runs ", limits_.max_requests,
                          " sequences at a time, and all are open; close one, or export the model "
                          "with a larger --max-num-batched-requests"));
  Sequence sequence;
  sequence.number = next_number_;
  sequence.slot = free_slots_.back();
  sequences_.emplace(sequence.number, std::move(sequence));
  write_sampling(free_slots_.back(), kLikeliest);
  free_slots_.pop_back();
  return next_number_++;
}

void Sequences::close(std::int64_t number) {
  Sequence& sequence = find(number);
  free_pages(sequence, 0);
  free_slots_.push_back(sequence.slot);
  std::sort(free_slots_.rbegin(), free_slots_.rend());
  sequences_.erase(number);
}

void Sequences::set_sampling(std::int64_t number, const tensor_ops_sampling& sampling) {
  Sequence& sequence = find(number);
  const auto require = [](const char* name, double given, bool is_valid, const char* expected) {
    if (!is_valid)
      throw ValueError(text("set_sampling: ", name, " must be ", expected, ", got ", given));
  };
  // At higher temperatures neighbouring logits have the same probability, and top_k cannot tell
  // which is larger.
  constexpr double kHottest = 1e6;
  require("temperature", sampling.temperature,
          sampling.temperature >= 0 && sampling.temperature <= kHottest, "0 or larger, up to 1e6");
  require("top_p", sampling.top_p, sampling.top_p > 0 && sampling.top_p <= 1,
          "larger than 0, up to 1");
  require("min_p", sampling.min_p, sampling.min_p >= 0 && sampling.min_p <= 1, "from 0 to 1");
  require("top_k", sampling.top_k, sampling.top_k >= 0, "0 or larger");
  if (sampling.temperature != 0 && !has_samples_)
    throw ValueError("set_sampling: the program chooses by argmax; temperature must be 0");
  write_sampling(sequence.slot, sampling);
  // The next token may have been chosen by other settings: the last token is run again.
  if (sequence.has_next) go_back(sequence, sequence.num_fed - 1);
  sequence.has_next = false;
}

void Sequences::append(std::int64_t number, const std::int32_t* tokens, std::size_t count) {
  Sequence& sequence = find(number);
  const StepArrays& arrays = driver_.arrays();
  for (std::size_t i = 0; i < count; ++i)
    if (!arrays.is_word(tokens[i]))
      throw ValueError(
          text("append: tokens must be from 0 to ", arrays.num_words() - 1, ", got ", tokens[i]));
  const std::size_t length = sequence.tokens.size();
  if (count > longest_ - std::min(length, longest_))
    throw ValueError(text("append: ", count, " tokens after ", length, " are more than the ",
                          longest_,
                          " that a sequence may have; truncate it, or export the model "
                          "with a larger --max-seq-length"));
  if (count == 0) return;
  hold_pages(sequence, length + count);
  sequence.tokens.insert(sequence.tokens.end(), tokens, tokens + count);
  sequence.has_next = sequence.has_logits = false;
}

void Sequences::truncate(std::int64_t number, std::size_t length) {
  Sequence& sequence = find(number);
  if (length > sequence.tokens.size())
    throw ValueError(text("truncate: length must be from 0 to ", sequence.tokens.size(),
                          ", which the sequence has, got ", length));
  if (length == sequence.tokens.size()) return;
  sequence.tokens.resize(length);
  // The last token that is left runs again, to choose the next one.
  go_back(sequence, std::max<std::size_t>(length, 1) - 1);
  sequence.has_next = sequence.has_logits = false;
  free_pages(sequence, length);
}

// What a state was before a token is gone: all tokens run again, to the same results.
void Sequences::go_back(Sequence& sequence, std::size_t num_fed) const {
  if (num_fed < sequence.num_fed) sequence.num_fed = has_states_ ? 0 : num_fed;
}

void Sequences::run(const std::vector<std::int64_t>& numbers) { run(find_all(numbers), true); }

const std::vector<float>& Sequences::logits(std::int64_t number) {
  Sequence& sequence = find(number);
  if (sequence.tokens.empty())
    throw ValueError("logits: the sequence is empty; append tokens first");
  if (!sequence.has_logits) {
    if (sequence.num_waiting() == 0) go_back(sequence, sequence.num_fed - 1);
    run({&sequence}, true);
  }
  return sequence.logits;
}

std::vector<std::vector<std::int32_t>> Sequences::generate(
    const std::vector<std::int64_t>& numbers, std::size_t max_tokens,
    const std::vector<std::int32_t>& end_tokens, std::string& problem) {
  const std::vector<Sequence*> sequences = find_all(numbers);
  for (const Sequence* sequence : sequences)
    if (sequence->tokens.empty())
      throw ValueError(
          text("generate: sequence ", sequence->number, " is empty; append tokens first"));
  run(sequences, false);
  std::vector<std::vector<std::int32_t>> all(sequences.size());
  std::vector<Continuation> continued;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    Sequence& sequence = *sequences[i];
    if (sequence.next < 0) continue;
    all[i].push_back(sequence.next);
    sequence.tokens.push_back(sequence.next);
    sequence.has_next = sequence.has_logits = false;
    continued.push_back({&sequence, &all[i]});
  }
  const auto is_done = [&](const Continuation& continuation) {
    const std::int32_t last = continuation.tokens->back();
    return continuation.sequence->has_next || continuation.tokens->size() == max_tokens ||
           contains(end_tokens, last) || continuation.sequence->tokens.size() > longest_ ||
           !driver_.arrays().is_word(last);
  };
  for (;;) {
    continued.erase(std::remove_if(continued.begin(), continued.end(), is_done), continued.end());
    drop_without_page(continued);
    if (continued.empty()) break;
    run_steps(continued, steps_with_room(continued, max_tokens), end_tokens);
  }
  for (const Sequence* sequence : sequences)
    if (problem.empty() && sequence->has_next && sequence->next < 0) problem = sequence->problem;
  return all;
}

std::string Sequences::without_token(const Sequence& sequence, std::size_t num_tokens,
                                     std::size_t num_selected) {
  const auto& nodes = driver_.program().nodes;
  const std::size_t node = driver_.first_nan(num_tokens, num_selected, sequence.slot);
  const std::string step = text("sequence ", sequence.number, ": the step after its ",
                                sequence.tokens.size(), " tokens chose none, since ");
  if (node == nodes.size() && has_states_)  // the step cannot be looked at again
    return text(step, "logits are NaN, or all are minus infinity");
  if (node == nodes.size()) return text(step, "all logits are minus infinity");
  return text(step, "logits are NaN. The first result with NaN is that of ", nodes[node].where(),
              ": the weights are damaged, or numbers became too large");
}

// Drops the sequences that cannot go on because the others hold all pages.
void Sequences::drop_without_page(std::vector<Continuation>& continued) const {
  std::size_t left = num_free_pages_;
  const auto is_without = [&](const Continuation& continuation) {
    const std::size_t missing =
        missing_pages(*continuation.sequence, continuation.sequence->tokens.size());
    if (missing > left) return true;
    left -= missing;
    return false;
  };
  std::vector<Continuation> kept;
  for (const Continuation& continuation : continued)
    if (!is_without(continuation)) kept.push_back(continuation);
  continued.swap(kept);
}

std::size_t Sequences::steps_with_room(const std::vector<Continuation>& continued,
                                       std::size_t max_tokens) const {
  std::size_t most = kMostStepsAtOnce;
  for (const Continuation& continuation : continued)
    most = std::min({most, max_tokens - continuation.tokens->size(),
                     longest_ - continuation.sequence->num_fed});
  const auto has_pages = [&](std::size_t steps) {
    std::size_t missing = 0;
    for (const Continuation& continuation : continued)
      missing += missing_pages(*continuation.sequence, continuation.sequence->num_fed + steps);
    return missing <= num_free_pages_;
  };
  while (most > 1 && !has_pages(most)) most /= 2;
  return most;
}

void Sequences::run_steps(const std::vector<Continuation>& continued, std::size_t num_steps,
                          const std::vector<std::int32_t>& end_tokens) {
  const std::size_t count = continued.size();
  for (std::size_t i = 0; i < count; ++i) {
    Sequence& sequence = *continued[i].sequence;
    hold_pages(sequence, sequence.num_fed + num_steps);
    put(i, sequence, sequence.num_fed);
    step_.selected[i] = static_cast<std::int32_t>(i);
  }
  const std::vector<std::vector<std::int32_t>> ends(count, end_tokens);
  const std::vector<std::int32_t> chosen =
      driver_.run_steps({count, num_steps, tokens_name_, ends});
  for (std::size_t i = 0; i < count; ++i) {
    Sequence& sequence = *continued[i].sequence;
    for (std::size_t row = i; row < chosen.size(); row += count) {
      if (chosen[row] < 0) {  // in the last step
        sequence.next = chosen[row];
        sequence.has_next = true;
        sequence.problem = without_token(sequence, count, count);
        break;
      }
      sequence.tokens.push_back(chosen[row]);
      continued[i].tokens->push_back(chosen[row]);
    }
    sequence.num_fed += chosen.size() / count;
    free_pages(sequence, sequence.num_fed);
  }
}

void Sequences::run(const std::vector<Sequence*>& sequences, bool keeps_logits) {
  std::vector<Sequence*> waiting;
  std::size_t missing = 0;
  for (Sequence* sequence : sequences) {
    if (sequence->num_waiting() == 0) continue;
    if (sequence->tokens.size() > longest_)
      throw ValueError(text("sequence ", sequence->number, " has come to the ", longest_,
                            " tokens that a sequence may have; truncate it, or export the model "
                            "with a larger --max-seq-length"));
    missing += missing_pages(*sequence, sequence->tokens.size());
    waiting.push_back(sequence);
  }
  require_pages("the sequences need", missing);
  for (Sequence* sequence : waiting) hold_pages(*sequence, sequence->tokens.size());
  while (!waiting.empty()) {
    run_step(waiting, keeps_logits);
    waiting.erase(std::remove_if(waiting.begin(), waiting.end(),
                                 [](const Sequence* each) { return each->num_waiting() == 0; }),
                  waiting.end());
  }
}

// Runs one step on tokens that wait. Sequences with one token come first, so that long ones do not
// hold them up.
void Sequences::run_step(const std::vector<Sequence*>& sequences, bool keeps_logits) {
  std::vector<Sequence*> ordered = sequences;
  std::stable_partition(ordered.begin(), ordered.end(),
                        [](const Sequence* each) { return each->num_waiting() == 1; });
  struct StepPart {
    Sequence* sequence;
    std::size_t end, selected;  // the rows of its last token, among all tokens and selected ones
    std::size_t count;
  };
  std::vector<StepPart> parts;
  std::size_t num_tokens = 0, num_selected = 0;
  for (Sequence* sequence : ordered) {
    const std::size_t count = std::min(sequence->num_waiting(), limits_.max_tokens - num_tokens);
    if (count == 0) break;
    for (std::size_t i = 0; i < count; ++i, ++num_tokens)
      put(num_tokens, *sequence, sequence->num_fed + i);
    parts.push_back({sequence, num_tokens - 1, num_selected, count});
    if (count == sequence->num_waiting())
      step_.selected[num_selected++] = static_cast<std::int32_t>(num_tokens - 1);
  }
  driver_.run(num_tokens, num_selected);
  for (const StepPart& part : parts) {
    Sequence& sequence = *part.sequence;
    sequence.num_fed += part.count;
    if (sequence.num_waiting() > 0) continue;
    sequence.next = chosen_[chosen_by_token_ ? part.end : part.selected];
    sequence.has_next = true;
    if (sequence.next < 0) sequence.problem = without_token(sequence, num_tokens, num_selected);
    if (!keeps_logits) continue;
    const float* const row = logits_ + (logits_by_token_ ? part.end : part.selected) * num_logits_;
    sequence.logits.assign(row, row + num_logits_);
    sequence.has_logits = true;
  }
}

void Sequences::put(std::size_t index, const Sequence& sequence, std::size_t position) {
  step_.tokens[index] = sequence.tokens[position];
  step_.positions[index] = static_cast<std::int32_t>(position);
  step_.slots[index] = static_cast<std::int32_t>(sequence.slot);
}

Sequences::Sequence& Sequences::find(std::int64_t number) {
  const auto found = sequences_.find(number);
  if (found != sequences_.end()) return found->second;
  const std::string all = joined(sequences_, [](const auto& each) { return each.first; });
  throw ValueError(
      text("there is no sequence ", number, "; there are ", all.empty() ? "none" : all));
}

std::vector<Sequences::Sequence*> Sequences::find_all(const std::vector<std::int64_t>& numbers) {
  std::vector<Sequence*> found;
  for (std::int64_t number : numbers) {
    Sequence* const sequence = &find(number);
    if (std::find(found.begin(), found.end(), sequence) != found.end())
      throw ValueError(text("sequence ", number, " is given twice"));
    found.push_back(sequence);
  }
  return found;
}

std::size_t Sequences::pages_for(std::size_t length) const {
  return (length + limits_.page_size - 1) / limits_.page_size;
}

std::size_t Sequences::missing_pages(const Sequence& sequence, std::size_t length) const {
  return std::max(pages_for(length), sequence.num_pages) - sequence.num_pages;
}

void Sequences::require_pages(const std::string& who, std::size_t missing) const {
  if (missing > num_free_pages_)
    throw MemoryError(text(who, " ", missing, " more pages of ", limits_.page_size, " tokens, and ",
                           num_free_pages_, " of ", limits_.num_pages,
                           " are free; close or truncate a sequence, or export the model with room "
                           "for more"));
}

std::int32_t* Sequences::page_table(const Sequence& sequence) const {
  return step_.page_table + sequence.slot * step_.pages_per_request;
}

void Sequences::hold_pages(Sequence& sequence, std::size_t length) {
  const std::size_t missing = missing_pages(sequence, length);
  require_pages(text("sequence ", sequence.number, " needs"), missing);
  std::int32_t* const table = page_table(sequence);
  for (std::size_t i = 0; i < missing; ++i) {
    const std::size_t page = next_page(sequence);
    is_free_[page] = false;
    --num_free_pages_;
    table[sequence.num_pages++] = static_cast<std::int32_t>(page);
  }
}

// The page behind the last one if it is free. Else the first free one of the group that has most of
// them, of those that no sequence fills as long as there is one: sequences which grow in turn do
// not share groups.
std::size_t Sequences::next_page(const Sequence& sequence) const {
  const auto last_page = [this](const Sequence& each) {
    return static_cast<std::size_t>(page_table(each)[each.num_pages - 1]);
  };
  if (sequence.num_pages > 0) {
    const std::size_t behind = last_page(sequence) + 1;
    if (behind < is_free_.size() && is_free_[behind]) return behind;
  }
  const auto is_being_filled = [&](std::size_t begin) {
    return std::any_of(sequences_.begin(), sequences_.end(), [&](const auto& each) {
      return each.second.num_pages > 0 &&
             last_page(each.second) / group_size_ == begin / group_size_;
    });
  };
  std::size_t best = 0, most = 0;
  for (const bool skips_filled : {true, false}) {
    for (std::size_t begin = 0; begin < is_free_.size(); begin += group_size_) {
      const std::size_t end = std::min(begin + group_size_, is_free_.size());
      const std::size_t count = std::count(is_free_.begin() + begin, is_free_.begin() + end, true);
      if (count <= most || (skips_filled && is_being_filled(begin))) continue;
      best = begin;
      most = count;
    }
    if (most > 0) break;
  }
  return std::find(is_free_.begin() + best, is_free_.end(), true) - is_free_.begin();
}

void Sequences::free_pages(Sequence& sequence, std::size_t length) {
  std::int32_t* const table = page_table(sequence);
  while (sequence.num_pages > pages_for(length)) {
    is_free_[table[--sequence.num_pages]] = true;
    ++num_free_pages_;
  }
}

void Sequences::write_sampling(std::size_t slot, const tensor_ops_sampling& sampling) {
  step_.temperature[slot] = static_cast<float>(sampling.temperature);
  step_.top_p[slot] = static_cast<float>(sampling.top_p);
  step_.min_p[slot] = static_cast<float>(sampling.min_p);
  step_.top_k[slot] = sampling.top_k;
  step_.seed[slot] = sampling.seed;
  step_.num_edits[slot] = 0;
}

}  // namespace tensor_ops::decode
