// Shared libraries of backends: opening one, and checking the table that it returns. What has been
// opened stays open.
#pragma once

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string>

#include "tensor_ops/abi.h"
#include "tensor_ops/backend/detail/paths.h"
#include "tensor_ops/backend/errors.h"

#ifndef _WIN32
#include <dlfcn.h>
#ifdef __GLIBC__
#include <link.h>
#endif
#endif

namespace tensor_ops::backend::detail {

// A table, or why there is none.
struct Loaded {
  const tensor_ops_backend* table = nullptr;
  std::string problem = {};
};

#ifdef _WIN32

inline std::string library_name(const std::string& name) { return "tensor_ops_" + name + ".dll"; }

// The function of a library, null with the problem where there is none.
inline tensor_ops_get_backend* entry_of(const std::string& path, const std::string& symbol,
                                        std::string& problem) {
  const auto what_failed = [](const std::string& what) {
    return what + " failed with error " + std::to_string(::GetLastError());
  };
  // The function takes no path with slashes where the folder of the library is to be searched too.
  const HMODULE module =
      ::LoadLibraryExW(path_of(path).make_preferred().c_str(), nullptr,
                       LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR | LOAD_LIBRARY_SEARCH_DEFAULT_DIRS);
  if (module == nullptr) {
    problem = what_failed("loading " + path);
    return nullptr;
  }
  const FARPROC entry = ::GetProcAddress(module, symbol.c_str());
  if (entry == nullptr) problem = path + " has no function " + symbol;
  return reinterpret_cast<tensor_ops_get_backend*>(reinterpret_cast<void*>(entry));
}

inline void keep_loaded(const void* address) {
  HMODULE module;
  ::GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN,
                       static_cast<const wchar_t*>(address), &module);
}

inline std::string folder_of_module(const void* address) {
  HMODULE module;
  wchar_t path[32768];
  if (::GetModuleHandleExW(
          GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
          static_cast<const wchar_t*>(address), &module) == 0)
    return "";
  const DWORD length = ::GetModuleFileNameW(module, path, 32768);
  return text_of(std::filesystem::path(std::wstring(path, length)).parent_path());
}

#else

inline std::string library_name(const std::string& name) {
#ifdef __APPLE__
  return "libtensor_ops_" + name + ".dylib";
#else
  return "libtensor_ops_" + name + ".so";
#endif
}

// The function of a library, null with the problem where there is none.
inline tensor_ops_get_backend* entry_of(const std::string& path, const std::string& symbol,
                                        std::string& problem) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const entry = library == nullptr ? nullptr : ::dlsym(library, symbol.c_str());
  if (library == nullptr) {
    const char* const error = ::dlerror();
    problem = "loading " + path + " failed: " + (error == nullptr ? "for no given reason" : error);
  } else if (entry == nullptr) {
    problem = path + " has no function " + symbol;
  }
  tensor_ops_get_backend* function = nullptr;
  std::memcpy(&function, &entry, sizeof function);  // ISO C++ has no cast between the two
  return function;
}

// Keeps the library of an address loaded when the program closes it; a program itself always is.
inline void keep_loaded(const void* address) {
  Dl_info info;
  if (::dladdr(address, &info) != 0 && info.dli_fname != nullptr)
    ::dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
}

// The folder of the program or library that an address is in, empty if that cannot be found out.
inline std::string folder_of_module(const void* address) {
  Dl_info info;
  std::string path;
#ifdef __GLIBC__
  // A program is named as it was started, which its current directory says nothing about.
  link_map* module = nullptr;
  if (::dladdr1(address, &info, reinterpret_cast<void**>(&module), RTLD_DL_LINKMAP) == 0) return "";
  const bool is_program = module != nullptr && *module->l_name == '\0';
  path = is_program ? "/proc/self/exe" : info.dli_fname;
#else
  if (::dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "";
  path = info.dli_fname;
#endif
  std::error_code error;
  const auto real = std::filesystem::canonical(path, error);
  return error ? "" : real.parent_path().string();
}

#endif

// The problem with a table that an entry point has returned, empty if there is none.
inline std::string problem_with(const tensor_ops_backend* table) {
  // The members of version 1 up to `decode`, which grows by itself.
  constexpr std::size_t kLeast = offsetof(tensor_ops_backend, decode);
  if (table->abi_version != TENSOR_OPS_ABI_VERSION)
    return "it has version " + std::to_string(table->abi_version) +
           " of the interface, and this program was compiled with version " +
           std::to_string(TENSOR_OPS_ABI_VERSION) + "; use versions of both that go together";
  if (table->size < kLeast)
    return "its table has " + std::to_string(table->size) + " bytes, of at least " +
           std::to_string(kLeast) + "; it was built wrongly";
  const bool has_text = table->name != nullptr && table->display_name != nullptr &&
                        table->version != nullptr && table->configuration != nullptr;
  const bool has_functions = table->unavailable_reason != nullptr &&
                             table->device_count != nullptr && table->device != nullptr &&
                             table->call != nullptr && table->num_threads != nullptr &&
                             table->set_num_threads != nullptr;
  const bool has_ops = table->op_count == 0 || (table->op_count > 0 && table->ops != nullptr);
  if (has_text && has_functions && has_ops) return "";
  return "its table lacks texts, functions or ops; it was built wrongly";
}

// The table of an entry point.
inline Loaded table_of(tensor_ops_get_backend* entry) {
  const tensor_ops_backend* table = nullptr;
  tensor_ops_error error{};
  const tensor_ops_status status = entry(TENSOR_OPS_ABI_VERSION, &table, &error);
  if (status != TENSOR_OPS_OK)
    return {nullptr, *error.message != '\0'
                         ? std::string(error.message)
                         : "its entry point failed with status " + std::to_string(status)};
  if (table == nullptr) return {nullptr, "its entry point returned no table"};
  const std::string problem = problem_with(table);
  return problem.empty() ? Loaded{table} : Loaded{nullptr, problem};
}

// The table of the library at a path that is to provide a backend.
inline Loaded load_library(const std::string& path, const std::string& name) {
  std::string problem;
  tensor_ops_get_backend* const entry = entry_of(path, "tensor_ops_" + name + "_backend", problem);
  if (entry == nullptr) return {nullptr, problem};
  Loaded loaded = table_of(entry);
  if (loaded.table != nullptr && name != loaded.table->name)
    loaded = {nullptr, std::string("it provides the backend '") + loaded.table->name + "'"};
  if (loaded.table == nullptr) loaded.problem = path + ": " + loaded.problem;
  return loaded;
}

}  // namespace tensor_ops::backend::detail
