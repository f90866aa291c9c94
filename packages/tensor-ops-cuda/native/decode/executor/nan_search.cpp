#include <algorithm>
#include <cstdint>
#include <vector>

#include "decode/executor/device_program.h"
#include "launch/memory.h"

namespace tensor_ops::decode {
namespace {

bool is_nan(float x) { return x != x; }
bool is_nan_of_half(std::uint16_t bits) { return (bits & 0x7fff) > 0x7c00; }

template <class T>
bool has_any(const void* first, std::size_t count, bool (*is_it)(T), cudaStream_t stream) {
  std::vector<T> elements(count);
  download(first, elements.data(), count * sizeof(T), stream);
  return std::any_of(elements.begin(), elements.end(), is_it);
}

// Whether a token's row of parts has a NaN, of which only those of its spans are written.
bool has_nan_parts(const Attention& attention, const float* row, std::size_t position,
                   cudaStream_t stream) {
  const auto span = static_cast<std::size_t>(attention.span),
             window = static_cast<std::size_t>(attention.window),
             most_spans = static_cast<std::size_t>(attention.most_spans),
             part = static_cast<std::size_t>(attention.head_size) + 2;
  const std::size_t begin =
      window > 0 && position + 1 > window ? (position + 1 - window) / span : 0;
  for (std::size_t head = 0; head < static_cast<std::size_t>(attention.heads); ++head)
    if (has_any(row + (head * most_spans + begin) * part, (position / span + 1 - begin) * part,
                is_nan, stream))
      return true;
  return false;
}

bool has_nan_in_cache(const Attention& attention, const Step& step, std::size_t token,
                      cudaStream_t stream) {
  const std::int32_t slot = step.slots[token], position = step.positions[token];
  const std::int32_t* const pages =
      step.page_table + static_cast<std::size_t>(slot) * step.pages_per_request;
  const std::int64_t page = attention.is_paged ? pages[position / attention.page_size] : slot;
  const auto size = static_cast<std::size_t>(attention.head_size);
  for (int head = 0; head < attention.kv_heads; ++head) {
    const std::int64_t row =
        (page * attention.kv_heads + head) * attention.page_size + position % attention.page_size;
    const auto at = static_cast<std::size_t>(row) * size;
    for (const void* cache : {attention.keys, attention.values})
      if (attention.is_half
              ? has_any(static_cast<const std::uint16_t*>(cache) + at, size, is_nan_of_half, stream)
              : has_any(static_cast<const float*>(cache) + at, size, is_nan, stream))
        return true;
  }
  return false;
}

}  // namespace

bool has_left_nan(const DeviceProgram& program, std::size_t phase, std::size_t row,
                  const Step& step, std::size_t token, cudaStream_t stream) {
  const DevicePhase& of = program.phase(phase);
  const PhaseRows left = program.rows_of(phase);
  const float* const first = left.first + row * left.columns;
  if (of.kind == DevicePhase::kAttend)
    return has_nan_parts(of.attention, first, static_cast<std::size_t>(step.positions[token]),
                         stream);
  if (has_any(first, left.columns, is_nan, stream)) return true;
  return of.result == DevicePhase::kRotated && has_nan_in_cache(of.attention, step, token, stream);
}

}  // namespace tensor_ops::decode
