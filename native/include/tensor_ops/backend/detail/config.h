// backend.json and the variables of the environment as levels of the selection:
// tensor_ops/config/, with the same rules and messages.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tensor_ops/backend/detail/config_location.h"
#include "tensor_ops/backend/detail/environment.h"
#include "tensor_ops/backend/detail/json.h"
#include "tensor_ops/backend/detail/text.h"
#include "tensor_ops/backend/detail/trusted_file.h"
#include "tensor_ops/backend/names.h"
#include "tensor_ops/backend/selection.h"

namespace tensor_ops::backend::detail {

// The problem of an order that has a name twice. Two names of one backend are no mistake: the
// backend that an alias stands for may depend on the machine.
inline std::string repeated(const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (std::count(names.begin(), names.end(), name) > 1)
      return "names " + in_quotes(name) + " twice; name each backend once";
  return "";
}

// A file's text, checked and read. Line numbers in messages are those of keys or names.
class ConfigFile {
 public:
  ConfigFile(std::string path, const std::string& text, const Names& installed)
      : path_(std::move(path)), text_(text), installed_(installed) {}

  ConfigLevel level() const {
    const Json content = parsed();
    check_keys(content);
    ConfigLevel level{path_};
    if (const Json* value = content.member("preferred_backend")) {
      check("preferred_backend", preferred_problem(*value));
      level.preferred = is_automatic(value->string) ? value->string : name(value->string);
    }
    if (const Json* value = content.member("backend_priority")) {
      check("backend_priority", priority_problem(*value));
      std::vector<std::string> names;
      for (const Json& each : value->items) names.push_back(name(each.string));
      level.priority = once_each(names);
    }
    const Json* force = content.member("force_backend");
    if (force != nullptr && force->kind != Json::Kind::kNull) {
      check("force_backend", force_problem(*force));
      level.force = name(force->string);
    }
    return level;
  }

 private:
  static inline const std::vector<std::string>& settings() {
    static const std::vector<std::string> keys{"preferred_backend", "backend_priority",
                                               "force_backend"};
    return keys;
  }

  Json parsed() const {
    check_encoding();
    Json content;
    try {
      content = JsonReader(text_, JsonRules::kPython).read();
    } catch (const JsonError& error) {
      const std::size_t position = error.position.value_or(0);
      throw ConfigError(at_line(line_of(position)) + ": is not valid JSON: " + error.what() +
                        (error.position ? column_text(position) : ""));
    }
    if (content.kind == Json::Kind::kObject) return content;
    throw ConfigError(at_line(1) + ": expected a JSON object, got " + in_words(content));
  }

  void check_encoding() const {
    for (const char* mark : {"\xef\xbb\xbf", "\xff\xfe", "\xfe\xff"})
      if (text_.rfind(mark, 0) == 0)
        throw ConfigError(at_line(1) + ": starts with a byte order mark; save it as plain UTF-8");
    if (const auto wrong = first_wrong_utf8(text_))
      throw ConfigError(at_line(line_of(wrong->position)) + ": is not UTF-8 (" + wrong->reason +
                        "); save it as UTF-8");
  }

  void check_keys(const Json& content) const {
    const auto& keys = content.keys;
    for (const std::string& key : keys) {
      if (std::count(keys.begin(), keys.end(), key) > 1)
        throw ConfigError(place_of(key, 1) + ": duplicate key " + in_quotes(key) +
                          "; write it once");
      const auto& known = settings();
      const bool is_setting = std::find(known.begin(), known.end(), key) != known.end();
      if (is_setting || key == "$schema" || key == "description") continue;
      throw ConfigError(place_of(key) + ": unknown key " + in_quotes(key) + "; " +
                        did_you_mean(key, known) + "Allowed keys: " + joined(known, ", ") +
                        ", $schema, description");
    }
  }

  void check(const std::string& key, const std::string& problem) const {
    if (!problem.empty()) throw ConfigError(place_of(key, 0, problem) + ": " + key + " " + problem);
  }

  std::string preferred_problem(const Json& value) const {
    if (value.kind == Json::Kind::kString && is_automatic(value.string)) return "";
    return name_problem(value, "a backend name, 'auto' or 'fastest'");
  }

  std::string force_problem(const Json& value) const {
    if (value.kind == Json::Kind::kString && is_automatic(value.string))
      return "must be one backend or null, not " + in_quotes(value.string);
    return name_problem(value, "a backend name or null");
  }

  std::string priority_problem(const Json& value) const {
    if (value.kind != Json::Kind::kArray)
      return std::string("must be a list of backend names, got ") + in_words(value);
    if (value.items.empty()) return "must name at least one backend, got an empty list";
    std::vector<std::string> names;
    for (const Json& each : value.items) {
      if (each.kind != Json::Kind::kString)
        return std::string("must hold backend names alone, got ") + in_words(each) + " at place " +
               std::to_string(names.size() + 1);
      const std::string problem = name_problem(each, "a backend name");
      if (!problem.empty()) return problem;
      names.push_back(each.string);
    }
    return repeated(names);
  }

  std::string name_problem(const Json& value, const std::string& expected) const {
    if (value.kind != Json::Kind::kString)
      return "must be " + expected + ", got " + in_words(value);
    try {
      name(value.string);
    } catch (const ConfigError& error) {
      return std::string("is wrong: ") + error.what();
    }
    return "";
  }

  std::string name(const std::string& written) const {
    return resolve(written, installed_, Unknown::kMayBeAPlugIn);
  }

  std::string at_line(std::size_t line) const { return path_ + ":" + std::to_string(line); }

  std::size_t line_of(std::size_t position) const {
    return 1 + static_cast<std::size_t>(std::count(
                   text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(position), '\n'));
  }

  // In characters.
  std::string column_text(std::size_t position) const {
    std::size_t column = 1;
    for (; position > 0 && text_[position - 1] != '\n'; --position)
      column += (text_[position - 1] & 0xc0) != 0x80;  // a character's first byte
    return " (column " + std::to_string(column) + ")";
  }

  static const char* in_words(const Json& value) {
    if (value.kind == Json::Kind::kBool) return value.boolean ? "true" : "false";
    constexpr const char* kWords[] = {"null", "", "a number", "a string", "a list", "an object"};
    return kWords[static_cast<int>(value.kind)];
  }

  // "file:line" of a key, or of the last of its values that the problem names.
  std::string place_of(const std::string& key, int occurrence = 0,
                       const std::string& problem = "") const {
    const std::string written = '"' + key + '"';
    std::vector<std::size_t> found;
    for (std::size_t at = 0; (at = text_.find(written, at)) != std::string::npos;
         at += written.size()) {
      const std::size_t next = text_.find_first_not_of(" \t\r\n", at + written.size());
      if (next != std::string::npos && text_[next] == ':') found.push_back(at);
    }
    const auto wanted = static_cast<std::size_t>(occurrence);
    std::size_t place = found.size() > wanted ? found[wanted] : 0;
    const std::size_t open = problem.find('\'');
    const std::size_t close =
        open == std::string::npos ? std::string::npos : problem.find('\'', open + 1);
    if (close != std::string::npos) {
      // Lists usually have one name per line; of two equal names the later one is at fault.
      const std::string value = text_.substr(place, text_.find(']', place) - place);
      const std::size_t at = value.rfind('"' + problem.substr(open + 1, close - open - 1) + '"');
      if (at != std::string::npos) place += at;
    }
    return at_line(line_of(place));
  }

  const std::string path_;
  const std::string& text_;
  const Names& installed_;
};

inline ConfigLevel load_config(const std::string& path,
                               const std::vector<std::string>& environments,
                               const Names& installed) {
  const std::string text = read_trusted(
      path, environments, std::string("set ") + kConfigVariable + " to a copy of your own");
  return ConfigFile(path, text, installed).level();
}

constexpr char kPriority[] = "TENSOR_OPS_BACKEND_PRIORITY";

// The levels of the environment, one for each variable, strongest first. `value_of` returns a
// variable's value, which may be empty.
inline std::vector<ConfigLevel> environment_levels(
    const Names& installed, const std::function<std::string(const char*)>& value_of) {
  constexpr char kForce[] = "TENSOR_OPS_FORCE_BACKEND", kPreferred[] = "TENSOR_OPS_BACKEND";
  const auto name = [&installed](const char* variable, const std::string& written) {
    try {
      return resolve(written, installed, Unknown::kMayBeAPlugIn);
    } catch (const ConfigError& error) {
      throw ConfigError(std::string("environment variable ") + variable + ": " + error.what());
    }
  };
  const std::string force = strip(value_of(kForce)), preferred = strip(value_of(kPreferred)),
                    priority = strip(value_of(kPriority));
  std::vector<ConfigLevel> levels;
  if (!force.empty()) levels.push_back({kForce, name(kForce, force)});
  if (!preferred.empty())
    levels.push_back({kPreferred, std::nullopt,
                      is_automatic(preferred) ? preferred : name(kPreferred, preferred)});
  if (!priority.empty()) {
    std::vector<std::string> written, names;
    for (const std::string& part : parts(priority, ',')) {
      written.push_back(strip(part));
      names.push_back(name(kPriority, written.back()));
    }
    const std::string problem = repeated(written);
    if (!problem.empty())
      throw ConfigError(std::string("environment variable ") + kPriority + " " + problem);
    levels.push_back({kPriority, std::nullopt, std::nullopt, once_each(names)});
  }
  return levels;
}

// A warning for each name in TENSOR_OPS_BACKEND_PRIORITY that may be a plug-in's.
inline std::vector<std::string> unknown_in_order(const std::vector<ConfigLevel>& levels) {
  std::vector<std::string> warnings;
  for (const ConfigLevel& level : levels) {
    if (level.source != kPriority) continue;
    for (const std::string& name : *level.priority)
      if (const std::string backend = split(name).first; !is_known(backend))
        warnings.push_back("backend '" + backend + "', named in " + level.source +
                           ", is passed over: " + why_not_native(backend));
  }
  return warnings;
}

}  // namespace tensor_ops::backend::detail
