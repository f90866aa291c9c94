// Paths as texts. All texts of this interface are UTF-8; Windows has paths and variables in UTF-16,
// and its own conversions of narrow text depend on the settings of the machine. Tested by
// tests/platforms.
#pragma once

#include <filesystem>
#include <string>

#ifdef _WIN32
#ifndef NOMINMAX
#define NOMINMAX
#endif
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#include <windows.h>
#endif

namespace tensor_ops::backend::detail {

#ifdef _WIN32

inline std::wstring wide(const std::string& text) {
  const int size = static_cast<int>(text.size());
  std::wstring found(::MultiByteToWideChar(CP_UTF8, 0, text.data(), size, nullptr, 0), L'\0');
  ::MultiByteToWideChar(CP_UTF8, 0, text.data(), size, found.data(),
                        static_cast<int>(found.size()));
  return found;
}

inline std::string narrow(const std::wstring& text) {
  const int size = static_cast<int>(text.size());
  std::string found(
      ::WideCharToMultiByte(CP_UTF8, 0, text.data(), size, nullptr, 0, nullptr, nullptr), '\0');
  ::WideCharToMultiByte(CP_UTF8, 0, text.data(), size, found.data(), static_cast<int>(found.size()),
                        nullptr, nullptr);
  return found;
}

inline bool is_slash(char c) { return c == '/' || c == '\\'; }
inline std::filesystem::path path_of(const std::string& text) { return wide(text); }
inline std::string text_of(const std::filesystem::path& path) { return narrow(path.native()); }

#else

inline bool is_slash(char c) { return c == '/'; }
inline std::filesystem::path path_of(const std::string& text) { return text; }
inline std::string text_of(const std::filesystem::path& path) { return path.native(); }

#endif

}  // namespace tensor_ops::backend::detail
