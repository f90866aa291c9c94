// Strings: cutting, joining and quoting them as Python does, so that messages are the same.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "tensor_ops/backend/errors.h"

namespace tensor_ops::backend::detail {

// A text of the caller. What std::string throws for a null pointer is no Error.
inline std::string not_null(const char* text, const char* what) {
  if (text == nullptr)
    throw ValueError(std::string(what) + " must be a string, got a null pointer");
  return text;
}

// Without the whitespace at both ends.
inline std::string strip(const std::string& text) {
  constexpr char kWhitespace[] = " \t\n\v\f\r\x1c\x1d\x1e\x1f";
  const std::size_t first = text.find_first_not_of(kWhitespace);
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(kWhitespace) - first + 1);
}

// The parts between separators, one more than there are separators.
inline std::vector<std::string> parts(const std::string& text, char separator) {
  std::vector<std::string> found;
  std::size_t start = 0;
  for (std::size_t end; (end = text.find(separator, start)) != std::string::npos; start = end + 1)
    found.push_back(text.substr(start, end - start));
  found.push_back(text.substr(start));
  return found;
}

template <class Parts>
std::string joined(const Parts& parts, const std::string& between) {
  std::string text;
  bool is_first = true;
  for (const auto& part : parts) {
    if (!is_first) text += between;
    text += part;
    is_first = false;
  }
  return text;
}

// The texts once each, in order.
inline std::vector<std::string> once_each(const std::vector<std::string>& texts) {
  std::vector<std::string> found;
  for (const std::string& text : texts)
    if (std::find(found.begin(), found.end(), text) == found.end()) found.push_back(text);
  return found;
}

// ASCII letters made small.
inline std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

// The text in quotes, with escapes for what is not printable. It is not called quoted(), since the
// compiler would take std::quoted() for it.
inline std::string in_quotes(const std::string& text) {
  const bool has_single = text.find('\'') != std::string::npos;
  const char quote = has_single && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == quote || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      char escape[5];
      std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned char>(c));
      out += escape;
    } else {
      out += c;
    }
  }
  return out + quote;
}

// One word for a shell.
inline std::string shell_quoted(const std::string& text) {
  constexpr char kPlain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\"'\"'") : std::string(1, c);
  return out + "'";
}

}  // namespace tensor_ops::backend::detail
