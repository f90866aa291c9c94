#include "decode/program/json_fields.h"

#include <algorithm>
#include <utility>

#include "declaration/errors.h"

namespace tensor_ops::decode {
namespace {

// "an object", "a string"
const char* kind_text(Json::Kind kind) {
  static constexpr const char* kTexts[] = {"null",     "a boolean", "a number",
                                           "a string", "an array",  "an object"};
  return kTexts[static_cast<int>(kind)];
}

std::string listed(const std::vector<const char*>& words) {
  return joined(words, [](const char* word) { return word; });
}

}  // namespace

Json parse_json(std::string_view json, const char* what) {
  using namespace backend::detail;
  const auto values = std::count_if(json.begin(), json.end(), [](char each) {
    return each == '[' || each == '{' || each == ',';
  });
  if (values > kMostValues)
    throw ValueError(
        text(what, ": JSON: about ", values, " values; expected at most ", kMostValues));
  if (const auto wrong = first_wrong_utf8(json))
    throw ValueError(text(what, ": JSON: text that is not UTF-8 at byte ", wrong->position));
  try {
    return JsonReader(json, JsonRules::kStandard).read();
  } catch (const JsonError& error) {
    const std::string place = error.position ? text(": byte ", *error.position) : "";
    throw ValueError(text(what, ": JSON: ", error.what(), place));
  }
}

std::string number_text(const Json& number) {
  return number.is_integer ? text(number.integer) : text(number.number);
}

Fields::Fields(const Json& json, std::string where, const std::vector<const char*>& known)
    : json_(require(json, Json::Kind::kObject, where)), where_(std::move(where)) {
  for (const std::string& key : json.keys)
    if (std::find(known.begin(), known.end(), key) == known.end())
      throw ValueError(text(where_, ": unknown key '", key, "'; expected ", listed(known)));
}

const Json& Fields::require(const Json& json, Json::Kind kind, const std::string& where) {
  if (json.kind == kind) return json;
  throw ValueError(text(where, " must be ", kind_text(kind), ", got ", kind_text(json.kind)));
}

std::size_t Fields::as_size(const Json& json, const std::string& where, std::int64_t least) {
  if (json.kind == Json::Kind::kNumber && json.is_integer && json.integer >= least &&
      json.integer <= kMostSize)
    return static_cast<std::size_t>(json.integer);
  const std::string got =
      json.kind == Json::Kind::kNumber ? number_text(json) : kind_text(json.kind);
  throw ValueError(
      text(where, " must be an integer from ", least, " to ", kMostSize, ", got ", got));
}

const Json& Fields::at(const char* key) const {
  if (const Json* const found = json_.member(key)) return *found;
  throw ValueError(text(where_, ": the key '", key, "' is missing"));
}

std::size_t Fields::choice(const char* key, const std::vector<const char*>& choices) const {
  const std::string& given = string(key);
  for (std::size_t i = 0; i < choices.size(); ++i)
    if (given == choices[i]) return i;
  throw ValueError(text(path(key), " must be one of ", listed(choices), "; got '", given, "'"));
}

}  // namespace tensor_ops::decode
