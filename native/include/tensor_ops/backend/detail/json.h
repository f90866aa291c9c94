// A strict reader of small JSON documents: what Python's json module reads, with its messages.
// Objects keep their members in order, so that a member that stands twice can be seen.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tensor_ops/backend/errors.h"

namespace tensor_ops::backend::detail {

struct Json {
  enum class Type { kNull, kFalse, kTrue, kNumber, kString, kList, kObject };

  Type type = Type::kNull;
  std::string string = {};  // UTF-8
  std::vector<Json> list = {};
  std::vector<std::pair<std::string, Json>> object = {};

  const char* type_in_words() const {
    constexpr const char* kWords[] = {"null",     "false",  "true",     "a number",
                                      "a string", "a list", "an object"};
    return kWords[static_cast<int>(type)];
  }
};

// What is wrong with a document, and the line: 1 where the whole is meant.
struct JsonError : Error {
  JsonError(const std::string& message, std::size_t line_number)
      : Error(message), line(line_number) {}
  std::size_t line;
};

class JsonReader {
 public:
  explicit JsonReader(const std::string& text) : text_(text) {}

  Json read() {
    skip_whitespace();
    Json value = read_value(0);
    skip_whitespace();
    if (at_ != text_.size()) fail("Extra data", at_);
    return value;
  }

 private:
  static constexpr int kDeepest = 500;
  // Python converts no integer that is longer.
  static constexpr std::size_t kMostDigits = 4300;

  [[noreturn]] void fail(const std::string& message, std::size_t position) const {
    std::size_t line = 1, line_start = 0;
    for (std::size_t i = 0; i < position; ++i)
      if (text_[i] == '\n') ++line, line_start = i + 1;
    std::size_t column = 1;
    for (std::size_t i = line_start; i < position; ++i)
      if ((text_[i] & 0xc0) != 0x80) ++column;  // not the second byte of a character or a later one
    throw JsonError(message + " (column " + std::to_string(column) + ")", line);
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void skip_whitespace() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
      ++at_;
  }

  bool take(const char* word) {
    const std::string expected = word;
    if (text_.compare(at_, expected.size(), expected) != 0) return false;
    at_ += expected.size();
    return true;
  }

  Json read_value(int depth) {
    if (depth > kDeepest) throw JsonError("it is nested too deeply", 1);
    switch (peek()) {
      case '"':
        return {Json::Type::kString, read_string()};
      case '{':
        return read_object(depth);
      case '[':
        return read_list(depth);
      default:
        break;
    }
    if (take("null")) return {};
    if (take("true")) return {Json::Type::kTrue};
    if (take("false")) return {Json::Type::kFalse};
    for (const char* constant : {"NaN", "Infinity", "-Infinity"})
      if (take(constant)) throw JsonError(std::string(constant) + " is not a JSON value", 1);
    return read_number();
  }

  std::size_t take_digits() {
    const std::size_t start = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    return at_ - start;
  }

  Json read_number() {
    const std::size_t start = at_;
    if (peek() == '-') ++at_;
    std::size_t digits = 1;
    if (peek() == '0') {
      ++at_;
    } else if ((digits = take_digits()) == 0) {
      at_ = start;
      fail("Expecting value", start);
    }
    const std::size_t whole_end = at_;
    if (peek() == '.') {
      ++at_;
      if (take_digits() == 0) at_ = whole_end;
    }
    const std::size_t fraction_end = at_;
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      if (take_digits() == 0) at_ = fraction_end;
    }
    if (at_ == whole_end && digits > kMostDigits)
      throw JsonError("a number has more than " + std::to_string(kMostDigits) + " digits", 1);
    return {Json::Type::kNumber};
  }

  std::uint32_t read_four_digits(std::size_t escape) {
    std::uint32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = peek();
      const bool is_digit = c >= '0' && c <= '9';
      const char small = static_cast<char>(c | 0x20);
      if (!is_digit && !(small >= 'a' && small <= 'f')) fail("Invalid \\uXXXX escape", escape);
      code = code * 16 + static_cast<std::uint32_t>(is_digit ? c - '0' : small - 'a' + 10);
    }
    return code;
  }

  // After the "\u".
  std::uint32_t read_unicode_escape() {
    std::uint32_t code = read_four_digits(at_);
    if (code < 0xd800 || code > 0xdbff || text_.compare(at_, 2, "\\u") != 0) return code;
    const std::size_t before = at_;
    at_ += 2;
    const std::uint32_t second = read_four_digits(at_);
    if (second >= 0xdc00 && second <= 0xdfff)
      return 0x10000 + ((code - 0xd800) << 10) + (second - 0xdc00);
    at_ = before;  // half of a pair stands alone
    return code;
  }

  static void append(std::string& text, std::uint32_t code) {
    const auto byte = [&text](std::uint32_t value) { text += static_cast<char>(value); };
    if (code < 0x80) {
      byte(code);
    } else if (code < 0x800) {
      byte(0xc0 | code >> 6), byte(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
      byte(0xe0 | code >> 12), byte(0x80 | (code >> 6 & 0x3f)), byte(0x80 | (code & 0x3f));
    } else {
      byte(0xf0 | code >> 18), byte(0x80 | (code >> 12 & 0x3f));
      byte(0x80 | (code >> 6 & 0x3f)), byte(0x80 | (code & 0x3f));
    }
  }

  std::string read_string() {
    const std::size_t start = at_++;
    std::string value;
    for (;;) {
      if (at_ >= text_.size()) fail("Unterminated string starting at", start);
      const char c = text_[at_];
      if (c == '"') return ++at_, value;
      if (static_cast<unsigned char>(c) < 0x20) fail("Invalid control character at", at_);
      ++at_;
      if (c != '\\') {
        value += c;
        continue;
      }
      if (at_ >= text_.size()) fail("Unterminated string starting at", start);
      const char escape = text_[at_++];
      constexpr char kEscapes[] = "\"\\/bfnrt", kMeanings[] = "\"\\/\b\f\n\r\t";
      const std::size_t index = std::string(kEscapes).find(escape);
      if (escape == 'u') {
        append(value, read_unicode_escape());
      } else if (index != std::string::npos) {
        value += kMeanings[index];
      } else {
        fail("Invalid \\escape", at_ - 2);
      }
    }
  }

  Json read_list(int depth) {
    Json found{Json::Type::kList};
    ++at_;
    skip_whitespace();
    if (peek() == ']') return ++at_, found;
    for (;;) {
      found.list.push_back(read_value(depth + 1));
      skip_whitespace();
      if (peek() == ']') return ++at_, found;
      if (peek() != ',') fail("Expecting ',' delimiter", at_);
      ++at_;
      skip_whitespace();
    }
  }

  Json read_object(int depth) {
    Json found{Json::Type::kObject};
    ++at_;
    skip_whitespace();
    if (peek() == '}') return ++at_, found;
    for (;;) {
      if (peek() != '"') fail("Expecting property name enclosed in double quotes", at_);
      std::string key = read_string();
      skip_whitespace();
      if (peek() != ':') fail("Expecting ':' delimiter", at_);
      ++at_;
      skip_whitespace();
      found.object.emplace_back(std::move(key), read_value(depth + 1));
      skip_whitespace();
      if (peek() == '}') return ++at_, found;
      if (peek() != ',') fail("Expecting ',' delimiter", at_);
      ++at_;
      skip_whitespace();
    }
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

}  // namespace tensor_ops::backend::detail
