// JSON that nobody has checked, and the members of its objects, checked as they are read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tensor_ops/backend/detail/json.h"

namespace tensor_ops::decode {

using Json = backend::detail::Json;

// In one text. A value takes up to sixty times the bytes of its text; one of a program, or of the
// header of its weights, has eight values for a tensor.
constexpr std::int64_t kMostValues = 1 << 20;

// what: names the text in messages. Throws ValueError, with the offset in bytes, for what is not
// one JSON value in UTF-8, and for a key that an object has twice. Throws it before anything is
// made of a text that may have more than kMostValues values.
Json parse_json(std::string_view text, const char* what);

// A number as messages show it: integers with all their digits.
std::string number_text(const Json& number);

constexpr std::int64_t kMostSize = INT32_MAX;  // tokens, rows and columns are numbered by int32

// Every function throws ValueError, naming `where`, for what is missing or of another kind.
class Fields {
 public:
  // Throws ValueError too for a member that is not known.
  Fields(const Json& json, std::string where, const std::vector<const char*>& known);

  static const Json& require(const Json& json, Json::Kind kind, const std::string& where);
  // An integer from `least` to kMostSize.
  static std::size_t as_size(const Json& json, const std::string& where, std::int64_t least = 1);

  const Json& at(const char* key) const;
  const Json& at(const char* key, Json::Kind kind) const {
    return require(at(key), kind, path(key));
  }
  const std::string& string(const char* key) const { return at(key, Json::Kind::kString).string; }
  std::size_t size(const char* key, std::int64_t least = 1) const {
    return as_size(at(key), path(key), least);
  }
  // A size that may be missing; then it is `otherwise`, which is also the least that it may be if
  // that is 0.
  std::size_t size_or(const char* key, std::size_t otherwise) const {
    return json_.member(key) ? size(key, otherwise == 0 ? 0 : 1) : otherwise;
  }
  // The index of a word among those that may stand there.
  std::size_t choice(const char* key, const std::vector<const char*>& choices) const;

 private:
  std::string path(const char* key) const { return where_ + ": " + key; }

  const Json& json_;
  const std::string where_;
};

}  // namespace tensor_ops::decode
