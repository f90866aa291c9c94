// Every backend name that a user may write, and what it stands for: tensor_ops/backends/names.py.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tensor_ops/backend/detail/nearest.h"
#include "tensor_ops/backend/detail/text.h"
#include "tensor_ops/backend/errors.h"

namespace tensor_ops::backend {

// The backends of tensor-ops. OpenCL and Python, that is NumPy, are there in Python alone.
enum class BackendType { kCuda, kOpenCL, kCpp, kPython };

inline const char* name_of(BackendType type) {
  constexpr const char* kNames[] = {"cuda", "opencl", "cpp", "python"};
  const auto index = static_cast<std::size_t>(type);
  if (index >= 4)
    throw ValueError("there is no BackendType " + std::to_string(index) +
                     "; use one of kCuda, kOpenCL, kCpp and kPython");
  return kNames[index];
}

namespace detail {

constexpr char kAuto[] = "auto";
constexpr char kFastest[] = "fastest";
constexpr char kLastResort[] = "python";
// The backend for devices of any kind: see walk() in selection.h.
constexpr char kLastOnCpus[] = "opencl";

inline bool is_automatic(const std::string& name) { return name == kAuto || name == kFastest; }

inline const std::vector<std::string>& default_priority() {
  static const std::vector<std::string> names{"cuda", "opencl", "cpp", kLastResort};
  return names;
}

// The backends that a library can provide.
inline const std::vector<std::string>& native_names() {
  static const std::vector<std::string> names{"cuda", "cpp"};
  return names;
}

inline bool is_native(const std::string& name) { return name == "cuda" || name == "cpp"; }

// A name that is known everywhere; `elsewhere` says where it runs if no library provides it.
struct KnownBackend {
  const char* name;
  const char* elsewhere;
};

inline const std::vector<KnownBackend>& known_backends() {
  static const std::vector<KnownBackend> known{
      {"cuda", ""},
      {"opencl",
       "it runs in Python alone: tensor-ops-opencl has no library for C++ programs; call "
       "tensor_ops in Python, or use 'cuda' or 'cpp'"},
      {"cpp", ""},
      {"python", "it runs in Python alone, with NumPy: call tensor_ops in Python, or use 'cpp'"},
      {"torch", "it runs in Python alone: use tensor_ops_torch there"},
      {"mps",
       "no backend of its own; Apple GPUs are reached through PyTorch: use tensor_ops_torch in "
       "Python"},
      {"rocm",
       "no backend of its own; AMD GPUs are reached through OpenCL: use tensor-ops-opencl in "
       "Python"},
      {"tpu",
       "no backend of its own; TPUs are reached through PyTorch/XLA: use tensor_ops_torch in "
       "Python"},
      {"nki",
       "no backend of its own; Neuron devices are reached through PyTorch: use tensor_ops_torch "
       "in Python"},
      {"triton", "no backend of its own; NVIDIA GPUs are served by the cuda backend: use 'cuda'"},
      {"cudnn", "no backend of its own; NVIDIA GPUs are served by the cuda backend: use 'cuda'"},
      {"mkl", "no backend of its own; Intel CPUs are served by the cpp backend: use 'cpp'"},
      {"mkldnn", "no backend of its own; Intel CPUs are served by the cpp backend: use 'cpp'"},
  };
  return known;
}

inline const std::vector<std::pair<std::string, std::string>>& aliases() {
  static const std::vector<std::pair<std::string, std::string>> found{
      {"numpy", "python"}, {"cpu", "cpp"}, {"openmp", "cpp"}};
  return found;
}

// Other names of hardware and its interfaces, with the backends to suggest for them.
inline const Meanings& meant() {
  static const Meanings found{
      {"amd", {"opencl:gpu", "cpp"}},
      {"apple", {"mps"}},
      {"c++", {"cpp"}},
      {"cl", {"opencl"}},
      {"cupy", {"cuda"}},
      {"cxx", {"cpp"}},
      {"directml", {"opencl:gpu"}},
      {"dml", {"opencl:gpu"}},
      {"gpu", {"cuda", "opencl:gpu"}},
      {"hip", {"opencl:gpu"}},
      {"intel", {"cpp", "opencl:gpu"}},
      {"metal", {"mps"}},
      {"native", {"cpp"}},
      {"np", {"numpy"}},
      {"npu", {}},
      {"nvidia", {"cuda"}},
      {"oneapi", {"opencl:gpu"}},
      {"openblas", {"cpp"}},
      {"radeon", {"opencl:gpu"}},
      {"simd", {"cpp"}},
      {"sycl", {"opencl:gpu"}},
      {"vulkan", {"opencl:gpu"}},
      {"xla", {"tpu"}},
      {"xpu", {"opencl:gpu"}},
  };
  return found;
}

inline bool is_known(const std::string& name) {
  const auto& known = known_backends();
  return std::any_of(known.begin(), known.end(),
                     [&](const KnownBackend& each) { return name == each.name; });
}

// A backend's name without the kind of device, and the kind, which may be empty.
inline std::pair<std::string, std::string> split(const std::string& name) {
  const std::size_t colon = name.find(':');
  if (colon == std::string::npos) return {name, ""};
  return {name.substr(0, colon), name.substr(colon + 1)};
}

// The meaning of a name that is neither known nor near to a known one.
enum class Unknown {
  kIsAnError,     // nothing: it is wrong
  kMayBeAPlugIn,  // a Python module that a plug-in registers, which is unavailable in C++
};

using Names = std::set<std::string>;

inline std::string resolved_backend(const std::string& name, const Names& installed,
                                    Unknown unknown) {
  if (name == "cpu" && installed.count("cpp") == 0) return kLastResort;
  for (const auto& [alias, target] : aliases())
    if (name == alias) return target;
  if (is_known(name) || installed.count(name) != 0) return name;
  Names sorted = installed;
  for (const KnownBackend& known : known_backends()) sorted.insert(known.name);
  for (const auto& alias : aliases()) sorted.insert(alias.first);
  const std::string all = joined(sorted, ", ");
  if (is_automatic(name))
    throw ConfigError(in_quotes(name) + " is not a backend; name one of " + all);
  std::vector<std::string> choices(sorted.begin(), sorted.end());
  choices.insert(choices.end(), {kAuto, kFastest});
  const std::string hint = did_you_mean(name, choices, meant());
  const bool is_meant = meant().count(lower(strip(name))) != 0;
  constexpr char kOfWords[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  const bool is_word = !name.empty() && name.find_first_not_of(kOfWords) == std::string::npos;
  if (unknown == Unknown::kMayBeAPlugIn && hint.empty() && !is_meant && is_word) return name;
  throw ConfigError("unknown backend " + in_quotes(name) + "; " + hint + "Known backends: " + all);
}

// The backend that a name stands for, with the kind of device if one follows. `cpu` is `cpp` where
// that is installed, else `python`.
inline std::string resolve(const std::string& name, const Names& installed,
                           Unknown unknown = Unknown::kIsAnError) {
  static const std::vector<std::string> kinds{"gpu", "cpu", "accelerator"};
  if (name.find(':') == std::string::npos) return resolved_backend(name, installed, unknown);
  const auto [backend, kind] = split(name);
  const std::string target = resolved_backend(backend, installed, unknown);
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end())
    throw ConfigError("unknown kind of device " + in_quotes(kind) + " in " + in_quotes(name) +
                      "; " + did_you_mean(kind, kinds) + "Kinds of device: " + joined(kinds, ", "));
  return target + ":" + kind;
}

// Why a backend that no library can provide is unavailable.
inline std::string why_not_native(const std::string& name) {
  for (const KnownBackend& known : known_backends())
    if (name == known.name) return known.elsewhere;
  return "no backend of that name is known in C++; if a plug-in provides it, it is a module of "
         "Python and runs there alone";
}

}  // namespace detail
}  // namespace tensor_ops::backend
