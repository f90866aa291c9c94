// The arrays that a caller fills before a step and reads after it. They lie in one block of memory,
// which outlives the executor where somebody still holds it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "declaration/errors.h"
#include "decode/program/program.h"
#include "decode/program/step.h"

namespace tensor_ops::decode {

struct StepArray {
  enum class Type { kInt32, kFloat32, kUint64 };
  std::string name;
  Type type;
  std::size_t rows, columns;  // 0 columns: one dimension
  std::size_t offset;

  std::size_t bytes() const;
};

class StepArrays {
 public:
  explicit StepArrays(const Program& program);

  const std::vector<StepArray>& all() const { return arrays_; }
  std::size_t bytes() const { return bytes_; }
  // Takes zeroed memory for them, aligned to 64 bytes. Throws MemoryError.
  void allocate();
  const std::shared_ptr<unsigned char>& memory() const { return memory_; }
  // The first byte of an array of this name, which there must be.
  unsigned char* value(const std::string& name) const;

  // Pointers to all of them. num_tokens, num_selected and number are 0.
  Step step() const;
  // Throws ValueError, without the name of the function that was called, for a step that is beyond
  // the limits, or that has something wrong in its arrays.
  void check(const Step& step);
  // Throws ValueError unless num_steps steps can run in a row, of which `step` is the first. It
  // must have passed check(), and must have one token of each slot.
  void check_steps(const Step& step, std::size_t num_steps) const;
  std::size_t num_words() const { return num_words_; }
  // Whether the embeddings have a row for a token.
  bool is_word(std::int32_t token) const;

 private:
  void add(const std::string& name, StepArray::Type type, std::size_t rows,
           std::size_t columns = 0);
  void check_tokens(const Step& step);
  void check_states(const Step& step) const;
  void check_pages(const Step& step) const;
  void check_page(const Step& step, std::size_t slot, std::size_t page) const;
  void check_sampling(const Step& step) const;
  void check_edits(const Step& step, std::size_t slot) const;

  const Limits limits_;
  std::vector<StepArray> arrays_;
  std::size_t bytes_ = 0;
  std::shared_ptr<unsigned char> memory_;
  std::size_t num_words_;           // tokens that all embeddings have
  std::size_t num_logits_;          // the fewest columns of logits that a node samples from
  std::size_t longest_window_ = 0;  // the most positions that a node reads of pages; 0: all
  bool has_samples_ = false, has_states_ = false, reads_pages_ = false;
  std::vector<std::int32_t> next_position_;  // by slot, while a step is checked
};

// Runs checks of a step, whose messages get the name of the function that is to take it.
template <class Check>
void check_for(const char* where, Check check) {
  try {
    check();
  } catch (const ValueError& error) {
    throw ValueError(text(where, ": ", error.what()));
  }
}

}  // namespace tensor_ops::decode
