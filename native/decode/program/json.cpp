#include "decode/program/json.h"

#include <cmath>
#include <locale>
#include <sstream>
#include <unordered_set>
#include <utility>

#include "declaration/errors.h"

namespace tensor_ops::decode {
namespace {

class Parser {
 public:
  Parser(std::string_view text, const char* what) : text_(text), what_(what) {}

  Json document() {
    Json value = this->value(0);
    skip_space();
    if (at_ < text_.size()) fail("text after the value");
    return value;
  }

 private:
  static constexpr int kDeepest = 64;

  [[noreturn]] void fail(const std::string& what) const {
    throw ValueError(text(what_, ": JSON: ", what, " at byte ", at_));
  }

  // 0 at the end, which no token contains.
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char wanted) {
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!take(wanted)) fail(text("expected '", wanted, "'"));
  }
  void skip_space() {
    while (peek() == ' ' || peek() == '\n' || peek() == '\r' || peek() == '\t') ++at_;
  }

  Json value(int depth) {
    if (depth > kDeepest) fail("values nested too deeply");
    skip_space();
    Json json;
    switch (peek()) {
      case '{':
        return object(depth);
      case '[':
        return array(depth);
      case '"':
        json.kind = Json::Kind::kString;
        json.string = string();
        return json;
      case 't':
      case 'f':
        json.kind = Json::Kind::kBool;
        json.boolean = peek() == 't';
        word(json.boolean ? "true" : "false");
        return json;
      case 'n':
        word("null");
        return json;
      default:
        return number();
    }
  }

  void word(std::string_view wanted) {
    if (text_.substr(at_, wanted.size()) != wanted) fail("unknown word");
    at_ += wanted.size();
  }

  Json object(int depth) {
    Json json;
    json.kind = Json::Kind::kObject;
    std::unordered_set<std::string> seen;
    expect('{');
    skip_space();
    if (take('}')) return json;
    do {
      skip_space();
      std::string key = string();
      if (!seen.insert(key).second) fail(text("key '", key, "' given twice"));
      json.keys.push_back(std::move(key));
      skip_space();
      expect(':');
      json.items.push_back(value(depth + 1));
      skip_space();
    } while (take(','));
    expect('}');
    return json;
  }

  Json array(int depth) {
    Json json;
    json.kind = Json::Kind::kArray;
    expect('[');
    skip_space();
    if (take(']')) return json;
    do {
      json.items.push_back(value(depth + 1));
      skip_space();
    } while (take(','));
    expect(']');
    return json;
  }

  Json number() {
    const std::size_t begin = at_;
    take('-');
    if (!take('0')) digits();
    Json json;
    json.kind = Json::Kind::kNumber;
    json.is_integer = true;
    if (take('.')) {
      json.is_integer = false;
      digits();
    }
    if (take('e') || take('E')) {
      json.is_integer = false;
      if (!take('+')) take('-');
      digits();
    }
    const std::string_view all = text_.substr(begin, at_ - begin);
    if (json.is_integer) json.is_integer = as_integer(all, json.integer);
    std::istringstream stream{std::string(all)};
    stream.imbue(std::locale::classic());  // "1.5" in every language
    stream >> json.number;
    if (stream.fail() || !std::isfinite(json.number)) fail("number out of range");
    return json;
  }

  void digits() {
    if (!is_digit(peek())) fail("expected a value");
    while (is_digit(peek())) ++at_;
  }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  static bool as_integer(std::string_view digits, std::int64_t& value) {
    const bool is_negative = digits[0] == '-';
    value = 0;
    for (char c : digits.substr(is_negative))
      if (__builtin_mul_overflow(value, 10, &value) ||
          __builtin_sub_overflow(value, c - '0', &value))
        return false;
    return is_negative || !__builtin_sub_overflow(0, value, &value);
  }

  std::string string() {
    expect('"');
    std::string result;
    while (!take('"')) {
      if (at_ >= text_.size()) fail("a string without an end");
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (c < 0x20) fail("control character in a string");
      if (c == '\\')
        escape(result);
      else
        utf8(result);
    }
    return result;
  }

  void escape(std::string& result) {
    static constexpr std::string_view kNames = "\"\\/bfnrt", kValues = "\"\\/\b\f\n\r\t";
    ++at_;
    if (take('u')) return append_utf8(result, escaped_code_point());
    const std::size_t which = peek() ? kNames.find(peek()) : kNames.npos;
    if (which == kNames.npos) fail("unknown escape");
    ++at_;
    result += kValues[which];
  }

  std::uint32_t escaped_code_point() {
    const std::uint32_t first = four_hex_digits();
    if (first < 0xD800 || first > 0xDFFF) return first;
    if (first > 0xDBFF || !take('\\') || !take('u')) fail("half of a surrogate pair");
    const std::uint32_t second = four_hex_digits();
    if (second < 0xDC00 || second > 0xDFFF) fail("half of a surrogate pair");
    return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
  }

  std::uint32_t four_hex_digits() {
    std::uint32_t value = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = peek();
      const int digit = is_digit(c)            ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) fail("expected four hexadecimal digits");
      value = value << 4 | static_cast<std::uint32_t>(digit);
    }
    return value;
  }

  static void append_utf8(std::string& result, std::uint32_t c) {
    const auto tail = [&](int shift) { result += static_cast<char>(0x80 | (c >> shift & 0x3F)); };
    if (c < 0x80) {
      result += static_cast<char>(c);
    } else if (c < 0x800) {
      result += static_cast<char>(0xC0 | c >> 6);
      tail(0);
    } else if (c < 0x10000) {
      result += static_cast<char>(0xE0 | c >> 12);
      tail(6), tail(0);
    } else {
      result += static_cast<char>(0xF0 | c >> 18);
      tail(12), tail(6), tail(0);
    }
  }

  // Copies one character, which must be encoded in its shortest form.
  void utf8(std::string& result) {
    const auto first = static_cast<unsigned char>(text_[at_]);
    const int more = first < 0x80 ? 0 : first < 0xC2 ? -1 : first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
    if (more < 0 || first > 0xF4 || at_ + static_cast<std::size_t>(more) >= text_.size())
      fail("text that is not UTF-8");
    std::uint32_t c = more == 0 ? first : first & (0x3Fu >> more);
    for (int i = 1; i <= more; ++i) {
      const auto next = static_cast<unsigned char>(text_[at_ + static_cast<std::size_t>(i)]);
      if ((next & 0xC0) != 0x80) fail("text that is not UTF-8");
      c = c << 6 | (next & 0x3Fu);
    }
    const bool is_long = (more == 2 && c < 0x800) || (more == 3 && c < 0x10000);
    if (is_long || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) fail("text that is not UTF-8");
    result.append(text_.substr(at_, static_cast<std::size_t>(more) + 1));
    at_ += static_cast<std::size_t>(more) + 1;
  }

  const std::string_view text_;
  const char* const what_;
  std::size_t at_ = 0;
};

}  // namespace

Json parse_json(std::string_view text, const char* what) { return Parser(text, what).document(); }

const char* kind_text(Json::Kind kind) {
  static constexpr const char* kTexts[] = {"null",     "a boolean", "a number",
                                           "a string", "an array",  "an object"};
  return kTexts[static_cast<int>(kind)];
}

std::string number_text(const Json& number) {
  return number.is_integer ? text(number.integer) : text(number.number);
}

}  // namespace tensor_ops::decode
