// Whether bytes are UTF-8, with the reasons that Python's decoder gives.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace tensor_ops::backend::detail {

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

}  // namespace tensor_ops::backend::detail
