// What is said of a decision: the error where nothing can run or another backend is forced, and the
// warning where something else runs than was asked for.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tensor_ops/backend/detail/text.h"
#include "tensor_ops/backend/names.h"
#include "tensor_ops/backend/selection.h"

namespace tensor_ops::backend::detail {

inline std::string nothing_runs(const Decision& decision, const std::vector<Step>& steps) {
  if (decision.mode == "force")
    return "backend " + in_quotes(steps.back().backend) + " (forced by " + decision.source +
           ") is unavailable: " + *steps.back().reason;
  std::vector<std::string> reasons;
  for (const Step& step : steps) reasons.push_back(step.backend + ": " + *step.reason);
  return "no backend can run in this program (" + decision.mode + " by " + decision.source +
         "): " + joined(reasons, "; ");
}

// Of a model that is to be opened on a backend; empty where no other one is forced.
inline std::string forced_elsewhere(const Decision& decision, const std::string& name) {
  const std::string forced = split(decision.candidates.front()).first;
  if (decision.mode != "force" || forced == name) return "";
  return "a model was to be opened on the backend " + in_quotes(name) + ", but " + decision.source +
         " forces " + in_quotes(forced) +
         (is_native(forced) ? "" : ", which C++ programs do not have") + "; set it to " +
         in_quotes(name) + ", or take it out";
}

// Of a preferred backend that is unavailable, of libraries that are broken, and of what only Python
// can do; empty where there is nothing to warn of.
inline std::string fallback_warning(const Decision& decision, const std::vector<Step>& steps,
                                    const std::function<bool(const std::string&)>& is_broken,
                                    const std::string& chosen) {
  std::vector<std::string> problems;
  if (decision.mode == kFastest)
    problems.push_back("'fastest', asked for by " + decision.source +
                       ", goes by times that only calls from Python are chosen by, and means "
                       "'auto' in C++");
  for (const Step& step : steps) {
    if (!step.reason) continue;
    if (decision.mode == "preferred" && &step == &steps.front())
      problems.push_back("backend " + in_quotes(step.backend) + ", preferred by " +
                         decision.source + ", is unavailable: " + *step.reason);
    else if (is_broken(step.backend))
      problems.push_back("backend " + in_quotes(step.backend) +
                         " is installed but cannot be used: " + *step.reason);
  }
  if (problems.empty()) return "";
  const char* const end = decision.mode == kFastest ? "" : " instead";
  return joined(problems, "; ") + ". Running on " + in_quotes(chosen) + end;
}

}  // namespace tensor_ops::backend::detail
