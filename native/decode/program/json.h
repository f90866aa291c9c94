// A strict reader of JSON (RFC 8259), for text that nobody has checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tensor_ops::decode {

struct Json {
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  bool boolean = false;
  bool is_integer = false;  // a number without fraction and exponent that int64 holds
  std::int64_t integer = 0;
  double number = 0;
  std::string string;
  std::vector<std::string> keys;  // of an object, in the order of the text
  std::vector<Json> items;        // of an array, or the values of an object
};

// what: names the text in messages. Throws ValueError, with the offset in bytes, for what is not
// one JSON value in UTF-8, for a key that an object has twice, and for values nested more deeply
// than 64.
Json parse_json(std::string_view text, const char* what);

// "an object", "a string"
const char* kind_text(Json::Kind kind);

// A number as messages show it: integers with all their digits.
std::string number_text(const Json& number);

}  // namespace tensor_ops::decode
