// Facts about this backend for native/binding.
#pragma once

namespace tensor_ops {

inline constexpr char kModule[] = "tensor_ops_cuda";
// The type of arrays, as docstrings call it.
inline constexpr char kArrayType[] = "array";
// A keyword that every op has besides `out`; null for none.
inline constexpr const char* kKeyword = nullptr;
inline constexpr char kKeywordType[] = "";
inline constexpr char kKeywordDescription[] = "";
// In the section Raises of docstrings.
inline constexpr char kNoArray[] = "is neither a NumPy array nor one on a CUDA device";
inline constexpr char kMoreValueErrors[] = ", or arrays are on different devices";
inline constexpr char kMoreErrors[] =
    "MemoryError\n    The device has no memory left.\n"
    "RuntimeError\n    There is no device that can be used, or it failed.\n";

}  // namespace tensor_ops
