// The word that was meant: Python's difflib.get_close_matches(), so that both suggest the same.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tensor_ops/backend/detail/text.h"

namespace tensor_ops::backend::detail {

// The number of characters in matching blocks: the longest common run, then those on its two sides.
inline std::size_t matching_characters(const std::string& a, const std::string& b) {
  std::size_t longest = 0, at_a = 0, at_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < b.size(); ++j) {
      std::size_t length = 0;
      while (i + length < a.size() && j + length < b.size() && a[i + length] == b[j + length])
        ++length;
      if (length > longest) longest = length, at_a = i, at_b = j;
    }
  }
  if (longest == 0) return 0;
  return longest + matching_characters(a.substr(0, at_a), b.substr(0, at_b)) +
         matching_characters(a.substr(at_a + longest), b.substr(at_b + longest));
}

// The likeness of two words, from 0 to 1.
inline double likeness(const std::string& a, const std::string& b) {
  const double all = static_cast<double>(a.size() + b.size());
  return all == 0 ? 1.0 : 2.0 * static_cast<double>(matching_characters(a, b)) / all;
}

using Meanings = std::map<std::string, std::vector<std::string>>;

// A question that names the choice nearest to a name, or nothing if none is near. Where `meant` has
// the name, in small letters, the question names what stands there.
inline std::string did_you_mean(const std::string& name, const std::vector<std::string>& choices,
                                const Meanings& meant = {}) {
  // No word that is near to a known one is longer, and comparing long ones takes long.
  constexpr std::size_t kLongest = 200;
  const std::string written = lower(strip(name));
  std::map<std::string, std::string> by_lower;
  for (const std::string& choice : choices) by_lower[lower(choice)] = choice;
  std::vector<std::string> found;
  const auto known = meant.find(written);
  if (by_lower.count(written) == 0 && known != meant.end()) {
    found = known->second;
  } else if (written.size() <= kLongest) {
    std::pair<double, std::string> best{0.0, ""};
    for (const auto& [lowered, choice] : by_lower)
      best = std::max(best, std::pair(likeness(lowered, written), lowered));
    if (best.first >= 0.6) found = {by_lower[best.second]};
  }
  if (found.empty()) return "";
  std::vector<std::string> others;
  for (const std::string& each : found) others.push_back(in_quotes(each));
  const std::string last = others.back();
  others.pop_back();
  if (others.empty()) return "did you mean " + last + "? ";
  return "did you mean " + joined(others, ", ") + " or " + last + "? ";
}

}  // namespace tensor_ops::backend::detail
