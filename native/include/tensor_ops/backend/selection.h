// The choice of a backend: one rule over plain values, without I/O. It is that of
// tensor_ops/config/selection.py, and a test compares the two.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tensor_ops/backend/detail/text.h"
#include "tensor_ops/backend/names.h"

namespace tensor_ops::backend {

// The wishes of a level (a variable of the environment, backend.json), if it has any.
struct ConfigLevel {
  std::string source;  // the level in words
  std::optional<std::string> force = std::nullopt;
  std::optional<std::string> preferred = std::nullopt;  // "auto" and "fastest" too
  std::optional<std::vector<std::string>> priority = std::nullopt;
};

// The outcome of the levels: which backends may run, in which order, and who said so.
struct Decision {
  std::string mode;  // "force", "preferred", "fastest" or "auto"
  std::vector<std::string> candidates;
  std::string source;                        // the level that decided
  std::vector<std::string> priority;         // the order of falling back
  std::vector<std::string> overridden = {};  // the levels that ask for another than the forced one
};

// One candidate of a walk and the reason it was passed over, none for the chosen one.
struct Step {
  std::string backend;
  std::optional<std::string> reason;
};

// The backend that runs (none where no candidate can) and the walk that led to it.
struct Choice {
  std::optional<std::string> backend;
  std::vector<Step> steps;
};

namespace detail {

inline std::vector<std::string> with_last_resort(std::vector<std::string> names) {
  names.push_back(kLastResort);
  return once_each(names);
}

// The name that satisfies both, one of which may say the kind of device; nothing where none does.
inline std::optional<std::string> narrower(const std::string& a, const std::string& b) {
  const auto [backend_a, kind_a] = split(a);
  const auto [backend_b, kind_b] = split(b);
  if (backend_a != backend_b) return std::nullopt;
  if (!kind_a.empty() && !kind_b.empty() && kind_a != kind_b) return std::nullopt;
  return kind_a.empty() ? b : a;
}

// The backend that a level asks for, if it asks for one.
inline std::optional<std::string> wanted_by(const ConfigLevel& level) {
  for (const auto& name : {level.force, level.preferred})
    if (name && !is_automatic(*name)) return name;
  return std::nullopt;
}

inline Decision forced(std::size_t forcing, const std::vector<ConfigLevel>& levels,
                       const std::vector<std::string>& priority) {
  const std::string& name = *levels[forcing].force;
  Decision decision{"force", {name}, levels[forcing].source, priority};
  for (std::size_t i = 0; i < levels.size(); ++i) {
    if (i == forcing) continue;
    const ConfigLevel& level = levels[i];
    auto wanted = wanted_by(level);
    // Only the priority of a stronger level contradicts the force.
    if (!wanted && level.priority && !level.priority->empty() && i < forcing)
      wanted = level.priority->front();
    if (!wanted) continue;
    const auto both = narrower(name, *wanted);
    // A weaker preference for a kind of device may still be met; another force cannot be.
    if (!both || (level.force && *both != name)) decision.overridden.push_back(level.source);
  }
  return decision;
}

}  // namespace detail

// The decision of the strongest level that forces, else of the first that asks. Within a level
// `force` goes before `preferred` and `priority`. The order of falling back is the first priority
// on any level.
inline Decision decide(std::vector<ConfigLevel> levels) {
  levels.push_back(
      {"the built-in default", std::nullopt, detail::kAuto, detail::default_priority()});
  const auto ordering = std::find_if(levels.begin(), levels.end(),
                                     [](const ConfigLevel& level) { return level.priority; });
  const std::vector<std::string> priority = *ordering->priority;
  for (std::size_t i = 0; i < levels.size(); ++i)
    if (levels[i].force) return detail::forced(i, levels, priority);
  const auto asking = std::find_if(levels.begin(), levels.end(), [](const ConfigLevel& level) {
    return level.preferred || level.priority;
  });
  const std::string preferred = asking->preferred.value_or(detail::kAuto);
  std::vector<std::string> candidates = priority;
  if (detail::is_automatic(preferred))
    return {preferred, detail::with_last_resort(candidates), asking->source, priority};
  candidates.insert(candidates.begin(), preferred);
  return {"preferred", detail::with_last_resort(candidates), asking->source, priority};
}

// Every candidate up to the first that can run, or all of them, with the reason against each.
// `reason` returns why a backend cannot run and `kind` the kind of device that an available one
// runs on. OpenCL on a CPU waits until the others have had their turn, unless it was asked for: in
// any order "opencl" stands for devices that are no CPUs, and "opencl:cpu" for CPUs. It does not
// wait for NumPy where the order does not name that.
inline std::vector<Step> walk(
    const Decision& decision,
    const std::function<std::optional<std::string>(const std::string&)>& reason,
    const std::function<std::string(const std::string&)>& kind, bool stop_at_first) {
  const std::vector<std::string>& candidates = decision.candidates;
  const auto& named = decision.priority;
  const bool is_last_resort_added =
      candidates.back() == detail::kLastResort &&
      std::find(named.begin(), named.end(), detail::kLastResort) == named.end();
  const std::size_t ordered = candidates.size() - is_last_resort_added;
  const bool is_asked_for = !detail::is_automatic(decision.mode);
  bool waits = false;
  std::vector<Step> steps;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (i == ordered && waits) {
      waits = false;
      steps.push_back({detail::kLastOnCpus, std::nullopt});
      if (stop_at_first) return steps;
    }
    const std::string& name = candidates[i];
    auto why = reason(name);
    const bool may_wait =
        name == detail::kLastOnCpus && i + 1 != ordered && !(is_asked_for && i == 0);
    if (!why && may_wait && kind(name) == "cpu") {
      waits = true;
      why = "its device is a CPU, for which the others are tried first; '" + name +
            ":cpu' has a place of its own";
    }
    steps.push_back({name, why});
    if (!why && stop_at_first) return steps;
  }
  if (waits) steps.push_back({detail::kLastOnCpus, std::nullopt});
  return steps;
}

// The choice among a decision's candidates; see walk().
inline Choice choose_for(
    const Decision& decision,
    const std::function<std::optional<std::string>(const std::string&)>& reason,
    const std::function<std::string(const std::string&)>& kind) {
  Choice choice{std::nullopt, walk(decision, reason, kind, true)};
  if (!choice.steps.empty() && !choice.steps.back().reason)
    choice.backend = detail::split(choice.steps.back().backend).first;
  return choice;
}

// The messages of a decision: the error where nothing can run or another backend is forced, and the
// warning where something else runs than was asked for.
namespace detail {

inline std::string nothing_runs(const Decision& decision, const std::vector<Step>& steps) {
  if (decision.mode == "force")
    return "backend " + in_quotes(steps.back().backend) + " (forced by " + decision.source +
           ") is unavailable: " + *steps.back().reason;
  std::vector<std::string> reasons;
  for (const Step& step : steps) reasons.push_back(step.backend + ": " + *step.reason);
  return "no backend can run in this program (" + decision.mode + " by " + decision.source +
         "): " + joined(reasons, "; ");
}

// The error of a model that is to be opened on a backend; empty where no other one is forced.
inline std::string forced_elsewhere(const Decision& decision, const std::string& name) {
  const std::string forced = split(decision.candidates.front()).first;
  if (decision.mode != "force" || forced == name) return "";
  return "a model was to be opened on the backend " + in_quotes(name) + ", but " + decision.source +
         " forces " + in_quotes(forced) +
         (is_native(forced) ? "" : ", which C++ programs do not have") + "; set it to " +
         in_quotes(name) + ", or take it out";
}

// The warning of a preferred backend that is unavailable, of libraries that are broken, and of what
// only Python can do; empty where there is none.
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

}  // namespace detail
}  // namespace tensor_ops::backend
