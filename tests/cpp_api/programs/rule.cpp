// Reads cases, one JSON object a line, and prints what the selection decides for each: the driver
// of test_selection.py.
#include <tensor_ops/backend/detail/config.h>

#include <iostream>
#include <map>
#include <string>
#include <vector>

using namespace tensor_ops::backend;
using detail::joined;
using detail::Json;

namespace {

const Json* member(const Json& object, const std::string& key) {
  const Json* const found = object.member(key);
  return found == nullptr || found->kind == Json::Kind::kNull ? nullptr : found;
}

std::string string_of(const Json& object, const std::string& key) {
  const Json* const found = member(object, key);
  return found == nullptr ? "" : found->string;
}

std::vector<std::string> strings_of(const Json& object, const std::string& key) {
  std::vector<std::string> found;
  if (const Json* const list = member(object, key))
    for (const Json& each : list->items) found.push_back(each.string);
  return found;
}

// mode | source | candidates | priority | overridden | chosen | steps
std::string decided(const Json& request) {
  const auto listed = strings_of(request, "installed");
  const detail::Names installed(listed.begin(), listed.end());
  auto levels = detail::environment_levels(
      installed, [&request](const char* name) { return string_of(request, name); });
  const std::string path = string_of(request, "file");
  if (!path.empty()) levels.push_back(detail::load_config(path, {}, installed));
  const Decision decision = decide(levels);
  const Json* const kinds = member(request, "available");
  const auto kind = [kinds](const std::string& name) {
    return string_of(*kinds, detail::split(name).first);
  };
  const auto reason = [&kind](const std::string& name) -> std::optional<std::string> {
    const std::string known = kind(name), wanted = detail::split(name).second;
    if (known.empty()) return "absent";
    if (wanted.empty() || wanted == known) return std::nullopt;
    return "its device is " + known;
  };
  const Choice choice = choose_for(decision, reason, kind);
  std::vector<std::string> steps;
  for (const Step& step : choice.steps)
    steps.push_back(step.backend + "=" + step.reason.value_or("chosen"));
  return decision.mode + "|" + decision.source + "|" + joined(decision.candidates, ",") + "|" +
         joined(decision.priority, ",") + "|" + joined(decision.overridden, ",") + "|" +
         choice.backend.value_or("none") + "|" + joined(steps, ";");
}

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::cout << decided(detail::JsonReader(line, detail::JsonRules::kPython).read()) << '\n';
    } catch (const ConfigError& error) {
      std::cout << "error: " << error.what() << '\n';
    }
  }
}
