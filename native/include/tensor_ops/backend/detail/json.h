// A strict reader of JSON, for bytes that nobody has checked. The problems that it names are worded
// as by Python's json module and its decoder of UTF-8.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <locale>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace tensor_ops::backend::detail {

// The first bytes that are not UTF-8.
struct WrongUtf8 {
  std::size_t position;
  const char* reason;
};

inline std::optional<WrongUtf8> first_wrong_utf8(std::string_view text) {
  const auto byte = [&text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  for (std::size_t i = 0; i < text.size();) {
    const unsigned char first = byte(i);
    if (first < 0x80) {
      ++i;
      continue;
    }
    if (first < 0xc2 || first > 0xf4) return WrongUtf8{i, "invalid start byte"};
    const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    for (std::size_t k = 1; k < length; ++k) {
      if (i + k == text.size()) return WrongUtf8{i, "unexpected end of data"};
      // The second byte has narrower limits after some first ones: no overlong forms, no
      // surrogates and nothing beyond U+10FFFF.
      const unsigned char low = k > 1 ? 0x80 : first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
      const unsigned char high = k > 1 ? 0xbf : first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
      if (byte(i + k) < low || byte(i + k) > high) return WrongUtf8{i, "invalid continuation byte"};
    }
    i += length;
  }
  return std::nullopt;
}

struct Json {
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  bool boolean = false;
  bool is_integer = false;  // a number without fraction and exponent that int64 holds
  std::int64_t integer = 0;
  double number = 0;
  std::string string = {};             // UTF-8
  std::vector<std::string> keys = {};  // of an object, in the order of the text
  std::vector<Json> items = {};        // of an array, or the values of an object

  // The first value of a key; null where there is none.
  const Json* member(std::string_view key) const {
    const auto found = std::find(keys.begin(), keys.end(), key);
    return found == keys.end() ? nullptr : &items[static_cast<std::size_t>(found - keys.begin())];
  }
};

enum class JsonRules {
  kStandard,  // RFC 8259
  kPython,    // a key may stand twice, half of a surrogate pair alone, and a number may be infinite
};

struct JsonError : std::runtime_error {
  explicit JsonError(const std::string& problem, std::optional<std::size_t> where = std::nullopt)
      : std::runtime_error(problem), position(where) {}
  std::optional<std::size_t> position;  // in bytes; none where Python names none
};

class JsonReader {
 public:
  // The text is UTF-8, which the caller has checked by first_wrong_utf8().
  JsonReader(std::string_view text, JsonRules rules) : text_(text), rules_(rules) {}

  // Throws JsonError for what is not one JSON value.
  Json read() {
    skip_whitespace();
    Json value = read_value(0);
    skip_whitespace();
    if (at_ != text_.size()) throw JsonError("Extra data", at_);
    return value;
  }

 private:
  static constexpr int kDeepest = 500;
  // Python converts no integer that is longer.
  static constexpr std::size_t kMostDigits = 4300;

  // 0 at the end, which no token contains.
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  void skip_whitespace() {
    while (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r') ++at_;
  }

  Json read_value(int depth) {
    if (depth > kDeepest) throw JsonError("it is nested too deeply");
    Json value;
    if (take("{")) {
      read_object(value, depth);
    } else if (take("[")) {
      read_array(value, depth);
    } else if (peek() == '"') {
      value.kind = Json::Kind::kString;
      value.string = read_string();
    } else if (take("true")) {
      value.kind = Json::Kind::kBool;
      value.boolean = true;
    } else if (take("false")) {
      value.kind = Json::Kind::kBool;
    } else if (!take("null")) {
      for (const char* constant : {"NaN", "Infinity", "-Infinity"})
        if (take(constant)) throw JsonError(std::string(constant) + " is not a JSON value");
      read_number(value);
    }
    return value;
  }

  void read_array(Json& array, int depth) {
    array.kind = Json::Kind::kArray;
    skip_whitespace();
    if (take("]")) return;
    do {
      skip_whitespace();
      array.items.push_back(read_value(depth + 1));
      skip_whitespace();
    } while (take(","));
    if (!take("]")) throw JsonError("Expecting ',' delimiter", at_);
  }

  void read_object(Json& object, int depth) {
    object.kind = Json::Kind::kObject;
    std::unordered_set<std::string> seen;
    skip_whitespace();
    if (take("}")) return;
    do {
      skip_whitespace();
      if (peek() != '"') throw JsonError("Expecting property name enclosed in double quotes", at_);
      object.keys.push_back(read_string());
      const std::string& key = object.keys.back();
      if (rules_ == JsonRules::kStandard && !seen.insert(key).second)
        throw JsonError("key '" + key + "' given twice", at_);
      skip_whitespace();
      if (!take(":")) throw JsonError("Expecting ':' delimiter", at_);
      skip_whitespace();
      object.items.push_back(read_value(depth + 1));
      skip_whitespace();
    } while (take(","));
    if (!take("}")) throw JsonError("Expecting ',' delimiter", at_);
  }

  std::size_t take_digits() {
    const std::size_t start = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    return at_ - start;
  }

  void read_number(Json& value) {
    const std::size_t start = at_;
    take("-");
    const std::size_t digits = take("0") ? 1 : take_digits();
    if (digits == 0) throw JsonError("Expecting value", start);
    const std::size_t whole_end = at_;
    if (take(".") && take_digits() == 0) at_ = whole_end;
    const std::size_t fraction_end = at_;
    if (take("e") || take("E")) {
      if (!take("+")) take("-");
      if (take_digits() == 0) at_ = fraction_end;
    }
    const std::string all(text_.substr(start, at_ - start));
    value.kind = Json::Kind::kNumber;
    if (at_ == whole_end) {
      if (digits > kMostDigits)
        throw JsonError("a number has more than " + std::to_string(kMostDigits) + " digits");
      const char* const end = all.data() + all.size();
      value.is_integer = std::from_chars(all.data(), end, value.integer).ec == std::errc();
    }
    std::istringstream stream(all);
    stream.imbue(std::locale::classic());  // "1.5" in every language
    stream >> value.number;
    const bool is_held = !stream.fail() && std::isfinite(value.number);
    if (!is_held && rules_ == JsonRules::kStandard) throw JsonError("number out of range", start);
  }

  std::string read_string() {
    const std::size_t start = at_++;
    std::string value;
    for (;;) {
      if (at_ >= text_.size()) throw JsonError("Unterminated string starting at", start);
      const char c = text_[at_];
      if (static_cast<unsigned char>(c) < 0x20)
        throw JsonError("Invalid control character at", at_);
      ++at_;
      if (c == '"') return value;
      if (c == '\\')
        read_escape(value, start);
      else
        value += c;
    }
  }

  void read_escape(std::string& value, std::size_t start) {
    static constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    if (at_ >= text_.size()) throw JsonError("Unterminated string starting at", start);
    if (take("u")) return append(value, read_code_point());
    const std::size_t which = kNames.find(text_[at_]);
    if (which == kNames.npos) throw JsonError("Invalid \\escape", at_ - 1);
    value += kMeanings[which];
    ++at_;
  }

  // After the "\u".
  std::uint32_t read_code_point() {
    const std::uint32_t code = read_four_digits();
    if (code < 0xd800 || code > 0xdfff) return code;
    const std::size_t before = at_;
    if (code < 0xdc00 && take("\\u")) {
      const std::uint32_t second = read_four_digits();
      if (second >= 0xdc00 && second <= 0xdfff)
        return 0x10000 + ((code - 0xd800) << 10) + (second - 0xdc00);
    }
    at_ = before;
    if (rules_ == JsonRules::kStandard) throw JsonError("half of a surrogate pair", at_);
    return code;
  }

  std::uint32_t read_four_digits() {
    const std::string_view digits = text_.substr(at_, 4);
    const char* const end = digits.data() + digits.size();
    std::uint32_t code = 0;
    const auto read = std::from_chars(digits.data(), end, code, 16);
    if (digits.size() < 4 || read.ptr != end) throw JsonError("Invalid \\uXXXX escape", at_);
    at_ += 4;
    return code;
  }

  static void append(std::string& text, std::uint32_t code) {
    const auto byte = [&text](std::uint32_t value) { text += static_cast<char>(value); };
    const auto tail = [&](int shift) { byte(0x80 | (code >> shift & 0x3f)); };
    if (code < 0x80) {
      byte(code);
    } else if (code < 0x800) {
      byte(0xc0 | code >> 6), tail(0);
    } else if (code < 0x10000) {
      byte(0xe0 | code >> 12), tail(6), tail(0);
    } else {
      byte(0xf0 | code >> 18), tail(12), tail(6), tail(0);
    }
  }

  const std::string_view text_;
  const JsonRules rules_;
  std::size_t at_ = 0;
};

}  // namespace tensor_ops::backend::detail
