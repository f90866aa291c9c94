#include "decode/program/letters.h"

#include <utility>

#include "declaration/errors.h"
#include "decode/program/sizes.h"

namespace tensor_ops::decode {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Calls visit(factor, letters) for each term of a size.
template <class Visit>
void for_terms(std::string_view size, Visit visit) {
  while (!size.empty()) {
    const std::string_view term = size.substr(0, size.find('+'));
    std::size_t factor = 0, digits = 0;
    for (; digits < term.size() && is_digit(term[digits]); ++digits)
      factor = 10 * factor + static_cast<std::size_t>(term[digits] - '0');
    visit(digits == 0 ? 1 : factor, term.substr(digits));
    size.remove_prefix(term.size() == size.size() ? term.size() : term.size() + 1);
  }
}

bool holds(const Relation& relation, std::size_t left, std::size_t right) {
  switch (relation.how) {
    case Relation::kAtLeast:
      return left >= right;
    case Relation::kAtMost:
      return left <= right;
    case Relation::kMultipleOf:
      return left % right == 0;
  }
  return false;
}

constexpr const char* kHow[] = {"at least", "at most", "a multiple of"};

}  // namespace

Letters::Letters(std::string where, std::size_t positions) : where_(std::move(where)) {
  letters_['P'] = {positions, "limits.max_seq_length"};
}

void Letters::match(std::string_view size, std::size_t given, const std::string& what) {
  if (size.empty()) return;
  if (knows(size)) {
    if (given != value(size))
      throw ValueError(
          text(where_, ": ", what, " must be ", value(size), " (", size, "), got ", given));
    return;
  }
  for_terms(size, [&](std::size_t factor, std::string_view letters) {
    if (given % factor != 0)
      throw ValueError(
          text(where_, ": ", what, " must be a multiple of ", factor, ", got ", given));
    letters_[letters.front()] = {given / factor, what};
  });
}

void Letters::require(const Relation& relation) const {
  if (!knows(relation.left) || !knows(relation.right)) return;
  const std::size_t left = value(relation.left), right = value(relation.right);
  if (!holds(relation, left, right))
    throw ValueError(text(where_, ": ", in_words(relation.left), " must be ", kHow[relation.how],
                          " ", in_words(relation.right), ", got ", left, " and ", right));
}

std::size_t Letters::value(std::string_view size) const {
  std::size_t sum = 0;
  for_terms(size, [&](std::size_t factor, std::string_view letters) {
    std::size_t product = factor;
    for (const char letter : letters)
      product = size_product(where_, product, letters_.at(letter).value);
    add_size(where_.c_str(), sum, product);
  });
  return sum;
}

bool Letters::knows(std::string_view size) const {
  bool all = true;
  for_terms(size, [&](std::size_t, std::string_view letters) {
    for (const char letter : letters) all &= letters_.count(letter) > 0;
  });
  return all;
}

std::string Letters::in_words(std::string_view size) const {
  std::string sum;
  for_terms(size, [&](std::size_t factor, std::string_view letters) {
    std::string product = factor > 1 || letters.empty() ? text(factor) : "";
    for (const char letter : letters)
      product += (product.empty() ? "" : " * ") + letters_.at(letter).words;
    sum += (sum.empty() ? "" : " + ") + product;
  });
  return sum;
}

}  // namespace tensor_ops::decode
