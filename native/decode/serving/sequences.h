// Sequences of tokens that an executor continues: their slots, their pages and their steps. Nothing
// is scheduled here: a call runs what its caller gives. Requests that wait, or share pages, are
// those of tensor_ops_decode/scheduling/requests.py (decision 64). Tested by
// tests/decode/scheduling/test_traces.py.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "decode/serving/driver.h"
#include "tensor_ops/decode.h"

namespace tensor_ops::decode {

// The likeliest token, always.
constexpr tensor_ops_sampling kLikeliest{sizeof(tensor_ops_sampling), 0, 1, 0, 0, 0};

// Every function throws ValueError for a number that no sequence has, and MemoryError where too few
// pages are free, before anything is computed. One call at a time.
class Sequences {
 public:
  // logits, tokens: the outputs with the logits and with the tokens that a step chose. Throws
  // ValueError where a step has no room for a token of each slot.
  Sequences(Driver& driver, const std::string& logits, std::string tokens);

  std::int64_t open();
  void close(std::int64_t number);
  void set_sampling(std::int64_t number, const tensor_ops_sampling& sampling);
  // The tokens wait until run(), logits() or generate() needs them.
  void append(std::int64_t number, const std::int32_t* tokens, std::size_t count);
  // Of a program with states, what is left runs again.
  void truncate(std::int64_t number, std::size_t length);
  // Runs the model on the tokens that wait.
  void run(const std::vector<std::int64_t>& numbers);
  std::size_t num_logits() const { return num_logits_; }
  // The logits of the token that would follow the sequence. Runs the tokens that wait first.
  const std::vector<float>& logits(std::int64_t number);
  // Returns the new tokens of each sequence: max_tokens, or fewer after an end token and where
  // there is no room for more. A sequence whose logits choose no token ends there while the others
  // go on, and `problem` says why.
  std::vector<std::vector<std::int32_t>> generate(const std::vector<std::int64_t>& numbers,
                                                  std::size_t max_tokens,
                                                  const std::vector<std::int32_t>& end_tokens,
                                                  std::string& problem);

 private:
  struct Sequence {
    std::int64_t number;
    std::size_t slot;
    std::vector<std::int32_t> tokens;
    std::size_t num_fed = 0;  // how many of the tokens the model has run on
    std::size_t num_pages = 0;
    bool has_next = false;  // whether the model has run on all tokens, and chosen the next one
    std::int32_t next = 0;  // negative where the logits choose no token
    std::string problem;    // why they choose none
    bool has_logits = false;
    std::vector<float> logits;

    std::size_t num_waiting() const { return tokens.size() - num_fed; }
  };
  // A sequence that generate() continues, and its new tokens.
  struct Continuation {
    Sequence* sequence;
    std::vector<std::int32_t>* tokens;
  };

  // Has the tokens from one on run again.
  void go_back(Sequence& sequence, std::size_t num_fed) const;
  Sequence& find(std::int64_t number);
  std::vector<Sequence*> find_all(const std::vector<std::int64_t>& numbers);
  void run(const std::vector<Sequence*>& sequences, bool keeps_logits);
  void run_step(const std::vector<Sequence*>& sequences, bool keeps_logits);
  void put(std::size_t index, const Sequence& sequence, std::size_t position);
  // Runs steps of sequences that wait with one token each.
  void run_steps(const std::vector<Continuation>& continued, std::size_t num_steps,
                 const std::vector<std::int32_t>& end_tokens);
  // Says why the logits of a sequence chose no token in the step that is in the arrays.
  std::string without_token(const Sequence& sequence, std::size_t num_tokens,
                            std::size_t num_selected);
  std::size_t steps_with_room(const std::vector<Continuation>& continued,
                              std::size_t max_tokens) const;
  void drop_without_page(std::vector<Continuation>& continued) const;

  std::size_t pages_for(std::size_t length) const;
  std::size_t missing_pages(const Sequence& sequence, std::size_t length) const;
  // Throws MemoryError unless so many pages are free; `who` says who needs them, as a sentence
  // begins.
  void require_pages(const std::string& who, std::size_t missing) const;
  std::int32_t* page_table(const Sequence& sequence) const;
  void hold_pages(Sequence& sequence, std::size_t length);
  // The page that is to follow those of a sequence. One is free.
  std::size_t next_page(const Sequence& sequence) const;
  void free_pages(Sequence& sequence, std::size_t length);  // keeps what `length` tokens need
  void write_sampling(std::size_t slot, const tensor_ops_sampling& sampling);

  Driver& driver_;
  const Limits& limits_;
  const Step step_;  // the arrays
  const std::size_t longest_;
  const std::string tokens_name_;
  const std::int32_t* chosen_;  // the output with the chosen tokens
  bool chosen_by_token_;        // whether it has a row for each token, not for each selected one
  const float* logits_;
  bool logits_by_token_;
  std::size_t num_logits_;
  bool has_samples_ = false, has_states_ = false;
  std::int64_t next_number_ = 1;
  std::map<std::int64_t, Sequence> sequences_;
  std::vector<std::size_t> free_slots_;  // the lowest is last
  std::vector<bool> is_free_;            // of each page
  std::size_t num_free_pages_ = 0;
  std::size_t group_size_ = 1;  // how many pages with consecutive numbers are best together
};

}  // namespace tensor_ops::decode
