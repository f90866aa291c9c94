// Facts about this backend for native/binding.
#pragma once

namespace tensor_ops {

inline constexpr char kModule[] = "tensor_ops_cpp";
// The type of arrays, as docstrings call it.
inline constexpr char kArrayType[] = "numpy.ndarray";
// A keyword that every op has besides `out`; null for none.
inline constexpr const char* kKeyword = "num_threads";
inline constexpr char kKeywordType[] = "int, optional";
inline constexpr char kKeywordDescription[] =
    "Threads to use, up to 64 or the number of CPUs. By default as many as pay, up to\n    "
    "get_num_threads().";
// In the section Raises of docstrings.
inline constexpr char kNoArray[] = "is not an array";
inline constexpr char kMoreValueErrors[] = "";
inline constexpr char kMoreErrors[] = "";

}  // namespace tensor_ops
