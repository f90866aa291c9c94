// Vectors between registers and memory: several, one or a part of one at a time, into the caches or
// past them.
#pragma once

#include "kernels/elements.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// The first `count` elements of T at an address, and zeros; count is less than there are in P.
template <class P, class T>
TENSOR_OPS_INLINE P load_part(const T* from, std::size_t count) {
#if defined(__AVX512F__)
  const auto mask = (std::uint64_t{1} << count) - 1;
  if constexpr (sizeof(T) == 2)
    return bit_cast<P>(_mm256_maskz_loadu_epi16(static_cast<__mmask16>(mask), from));
  else if constexpr (sizeof(T) == 4)
    return bit_cast<P>(_mm512_maskz_loadu_epi32(static_cast<__mmask16>(mask), from));
  else
    return bit_cast<P>(_mm512_maskz_loadu_epi64(static_cast<__mmask8>(mask), from));
#else
  P v{};
  __builtin_memcpy(&v, from, count * sizeof(T));
  return v;
#endif
}

template <class P, class T>
TENSOR_OPS_INLINE void store_part(T* to, P v, std::size_t count) {
#if defined(__AVX512F__)
  const auto mask = (std::uint64_t{1} << count) - 1;
  if constexpr (sizeof(T) == 2)
    _mm256_mask_storeu_epi16(to, static_cast<__mmask16>(mask), bit_cast<__m256i>(v));
  else if constexpr (sizeof(T) == 4)
    _mm512_mask_storeu_epi32(to, static_cast<__mmask16>(mask), bit_cast<__m512i>(v));
  else
    _mm512_mask_storeu_epi64(to, static_cast<__mmask8>(mask), bit_cast<__m512i>(v));
#else
  __builtin_memcpy(to, &v, count * sizeof(T));
#endif
}

// A store past the caches, to an address that is a multiple of the vector's size, or an ordinary
// store where the level has no such instruction. The launcher makes the stores of a run visible
// before what follows it.
template <class P>
TENSOR_OPS_INLINE void stream_vector(void* to, P v) {
#if defined(__x86_64__)
  if constexpr (sizeof(P) == kVectorBytes)
    TENSOR_OPS_X86(stream_ps)(static_cast<float*>(to), bit_cast<Floats>(v));
  else if constexpr (sizeof(P) == 32)
    _mm256_stream_ps(static_cast<float*>(to), bit_cast<VectorOf<float, 32>::Type>(v));
  else if constexpr (sizeof(P) == 16)
    _mm_stream_ps(static_cast<float*>(to), bit_cast<VectorOf<float, 16>::Type>(v));
  else
    store_vector(to, v);
#else
  store_vector(to, v);
#endif
}

// Stores a vector past the caches, where `streams`, or into them.
template <bool streams, class P>
TENSOR_OPS_INLINE void write_vector(void* to, P v) {
  if constexpr (streams)
    stream_vector(to, v);
  else
    store_vector(to, v);
}

constexpr std::size_t kLine = 64;  // bytes of a cache line

// Prefetches `bytes` from an address on, which need not be mapped, into the second-level cache.
TENSOR_OPS_INLINE void prefetch(const void* from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += kLine)
    __builtin_prefetch(reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(from) + i), 0,
                       2);
}

// Memory is prefetched so many bytes ahead of its use.
constexpr std::ptrdiff_t kAhead = 2560;

// The extent of what is loaded, computed and stored at a time: whole vectors, several so that their
// work is independent, or the first elements of one vector at an end of a row. `streams` is true if
// whole vectors are stored past the caches.
template <std::size_t count, bool is_streamed = false>
struct Whole {
  static constexpr std::size_t vectors = count;
  static constexpr bool streams = is_streamed;
};
struct PartialVector {
  static constexpr std::size_t vectors = 1;
  static constexpr bool streams = false;
  std::size_t elements;
};
constexpr std::size_t kUnroll = 4;

template <class V, std::size_t count>
struct Block {
  V vector[count];
};

// function(a's vector, others' vectors) for each vector of the blocks.
template <class Function, class V, std::size_t count, class... More>
TENSOR_OPS_INLINE auto map(Function function, const Block<V, count>& a, const More&... others) {
  Block<decltype(function(a.vector[0], others.vector[0]...)), count> result;
  for (std::size_t u = 0; u < count; ++u)
    result.vector[u] = function(a.vector[u], others.vector[u]...);
  return result;
}

template <class Element>
using VectorFor = Vector<typename Element::Compute>;
template <class Element>
constexpr std::size_t kLanesFor = kLanes<typename Element::Compute>;

// Elements from an address on, as a block; after those of a partial vector, zeros.
template <class Element, std::size_t count, bool streams>
TENSOR_OPS_INLINE Block<VectorFor<Element>, count> load_inline(const typename Element::Storage* x,
                                                               Whole<count, streams>) {
  Block<VectorFor<Element>, count> block;
  for (std::size_t u = 0; u < count; ++u)
    block.vector[u] =
        Element::widen(load_vector<typename Element::Packed>(x + u * kLanesFor<Element>));
  return block;
}
template <class Element>
TENSOR_OPS_INLINE Block<VectorFor<Element>, 1> load_inline(const typename Element::Storage* x,
                                                           PartialVector part) {
  return {{Element::widen(load_part<typename Element::Packed>(x, part.elements))}};
}
template <class Element, class Extent>
__attribute__((noinline)) auto load_out_of_line(const typename Element::Storage* x, Extent extent) {
  return load_inline<Element>(x, extent);
}
template <class Element, class Extent>
TENSOR_OPS_INLINE Block<VectorFor<Element>, Extent::vectors> load(
    const typename Element::Storage* x, Extent extent) {
  if constexpr (converts_slowly<Element>)
    return load_out_of_line<Element>(x, extent);
  else
    return load_inline<Element>(x, extent);
}

template <class Element, std::size_t count, bool streams>
TENSOR_OPS_INLINE void store_inline(typename Element::Storage* y,
                                    const Block<VectorFor<Element>, count>& block,
                                    Whole<count, streams>) {
  for (std::size_t u = 0; u < count; ++u)
    write_vector<streams>(y + u * kLanesFor<Element>, Element::narrow(block.vector[u]));
}
template <class Element>
TENSOR_OPS_INLINE void store_inline(typename Element::Storage* y,
                                    const Block<VectorFor<Element>, 1>& block, PartialVector part) {
  store_part(y, Element::narrow(block.vector[0]), part.elements);
}
template <class Element, class Extent>
__attribute__((noinline)) void store_out_of_line(
    typename Element::Storage* y, const Block<VectorFor<Element>, Extent::vectors>& block,
    Extent extent) {
  store_inline<Element>(y, block, extent);
}
template <class Element, class Extent>
TENSOR_OPS_INLINE void store(typename Element::Storage* y,
                             const Block<VectorFor<Element>, Extent::vectors>& block,
                             Extent extent) {
  if constexpr (converts_slowly<Element>)
    store_out_of_line<Element>(y, block, extent);
  else
    store_inline<Element>(y, block, extent);
}

template <class V, std::size_t... L>
TENSOR_OPS_INLINE Pair<V> deinterleaved(V first, V second, std::index_sequence<L...>) {
  return {__builtin_shufflevector(first, second, (2 * L)...),
          __builtin_shufflevector(first, second, (2 * L + 1)...)};
}

// Elements from an address on as two vectors, of the elements with even and with odd numbers.
template <class Element>
TENSOR_OPS_INLINE Pair<VectorFor<Element>> load_deinterleaved(const typename Element::Storage* x) {
  if constexpr (comes_in_pairs<Element>) {
    return Element::widen_pair(load_vector<typename Element::PackedPair>(x));
  } else {
    const auto both = load<Element>(x, Whole<2>{});
    return deinterleaved(both.vector[0], both.vector[1],
                         std::make_index_sequence<kLanesFor<Element>>());
  }
}

// load() and store() in an order of a block's elements that is the same in all blocks of an extent,
// but need not be that of memory: the cheapest one for elements of Order, which for float32 is that
// of memory. Element is Order, or one of the two is float32.
template <class Element, class Order = Element, class Extent>
TENSOR_OPS_INLINE auto load_unordered(const typename Element::Storage* x, Extent extent) {
  if constexpr (comes_in_pairs<Order> && Extent::vectors % 2 == 0) {
    Block<VectorFor<Element>, Extent::vectors> block;
    for (std::size_t u = 0; u < Extent::vectors; u += 2) {
      const auto pair = load_deinterleaved<Element>(x + u * kLanesFor<Element>);
      block.vector[u] = pair.hi;
      block.vector[u + 1] = pair.lo;
    }
    return block;
  } else {
    return load<Element>(x, extent);
  }
}
template <class Element, class Order = Element, class Values, class Extent>
TENSOR_OPS_INLINE void store_unordered(typename Element::Storage* y, const Values& block,
                                       Extent extent) {
  if constexpr (!comes_in_pairs<Order> || Extent::vectors % 2 != 0) {
    store<Element>(y, block, extent);
  } else {
    for (std::size_t u = 0; u < Extent::vectors; u += 2)
      write_vector<Extent::streams>(y + u * kLanesFor<Element>,
                                    Element::narrow_pair({block.vector[u], block.vector[u + 1]}));
  }
}

// The block itself, or a part with `otherwise` for its missing elements.
template <class V, std::size_t count, bool streams>
TENSOR_OPS_INLINE Block<V, count> only(Whole<count, streams>, const Block<V, count>& block,
                                       Lane<V> = 0) {
  return block;
}
template <class V>
TENSOR_OPS_INLINE Block<V, 1> only(PartialVector part, const Block<V, 1>& block,
                                   Lane<V> otherwise = 0) {
  Block<V, 1> kept = block;
  for (std::size_t l = 0; l < kLanes<Lane<V>>; ++l)
    if (l >= part.elements) kept.vector[0][l] = otherwise;
  return kept;
}

// Prefetches the block that is so many bytes after one at `from`.
template <class T, class Extent>
TENSOR_OPS_INLINE void prefetch_block(const T* from, std::ptrdiff_t distance, Extent) {
  prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(from) +
                                         static_cast<std::uintptr_t>(distance)),
           Extent::vectors * kVectorBytes / (sizeof(T) == 2 ? 2 : 1));
}

// body(i, extent) for all of [begin, end).
template <class C, class Body>
TENSOR_OPS_INLINE void for_blocks(std::size_t begin, std::size_t end, Body body) {
  constexpr std::size_t lanes = kLanes<C>;
  std::size_t i = begin;
  for (; i + kUnroll * lanes <= end; i += kUnroll * lanes) body(i, Whole<kUnroll>{});
  for (; i + lanes <= end; i += lanes) body(i, Whole<1>{});
  if (i < end) body(i, PartialVector{end - i});
}

// Elements up to the next line.
template <class Element>
TENSOR_OPS_INLINE std::size_t distance_to_line(const typename Element::Storage* y) {
  return (0 - reinterpret_cast<std::uintptr_t>(y)) % kLine / sizeof(typename Element::Storage);
}

// The fewest elements that are worth writing in whole lines.
template <class Element>
constexpr std::size_t kFewestInLines = 2 * kUnroll * kLanesFor<Element>;

// The writing of [begin, end) of a row: up to `line` in single vectors, and from there, where a
// line begins, in blocks of several and past the caches where `streams`.
struct Lines {
  std::size_t begin, line, end;
  bool streams;
};

// write(i, extent) for all of the lines. What precedes the first line and what follows the last
// whole block are written by the same code.
template <class Element, class Write>
TENSOR_OPS_INLINE void for_lines(const Lines& lines, Write write) {
  constexpr std::size_t lanes = kLanesFor<Element>, unrolled = kUnroll * lanes;
  constexpr std::size_t in_line = kLine / (lanes * sizeof(typename Element::Storage));
  const std::size_t end = lines.end;
  std::size_t i = lines.begin;
  for (std::size_t stop = lines.line;; stop = end) {
    for (; i + lanes <= stop; i += lanes) write(i, Whole<1>{});
    if (i < stop) write(i, PartialVector{stop - i});
    if (stop == end) return;
    i = stop;
    if (lines.streams) {
      for (; i + unrolled <= end; i += unrolled) write(i, Whole<kUnroll, true>{});
      for (; i + in_line * lanes <= end; i += in_line * lanes) write(i, Whole<in_line, true>{});
    }
    for (; i + unrolled <= end; i += unrolled) write(i, Whole<kUnroll>{});
  }
}

// Prefetches the last line of a row, which it shares with what follows: an ordinary store that had
// to wait for it would hold up the streamed ones behind it.
template <class T>
TENSOR_OPS_INLINE void prefetch_last_line(const T* end) {
  __builtin_prefetch(end, 1, 2);
}

// The lines of [begin, end) of a row y, unless it is too short to be worth it.
template <class Element>
TENSOR_OPS_INLINE Lines lines_of(bool streams, std::size_t begin, std::size_t end,
                                 const typename Element::Storage* y) {
  if (end - begin < kFewestInLines<Element>) return {begin, begin, end, false};
  if (streams) prefetch_last_line(y + end);
  return {begin, begin + distance_to_line<Element>(y + begin), end, streams};
}

// y[i] = values(i, extent), a block in the order of load_unordered(), for i from begin to end.
template <class Element, class Values>
TENSOR_OPS_INLINE void write_unordered_row(bool streams, std::size_t begin, std::size_t end,
                                           typename Element::Storage* y, Values values) {
  for_lines<Element>(lines_of<Element>(streams, begin, end, y), [&](std::size_t i, auto extent) {
    store_unordered<Element>(y + i, values(i, extent), extent);
  });
}

// y[i] = x[i], bit by bit. A streamed copy prefetches as many elements from `next` on.
template <class Element>
TENSOR_OPS_INLINE void copy_row(bool streams, std::size_t n, typename Element::Storage* y,
                                const typename Element::Storage* x,
                                const typename Element::Storage* next) {
  using P = typename Element::Packed;
  constexpr std::size_t lanes = kLanesFor<Element>;
  for_lines<Element>(lines_of<Element>(streams, 0, n, y), [=](std::size_t i, auto extent) {
    if constexpr (extent.streams) prefetch_block(next + i, 0, extent);
    if constexpr (std::is_same_v<decltype(extent), PartialVector>)
      store_part(y + i, load_part<P>(x + i, extent.elements), extent.elements);
    else
      for (std::size_t u = 0; u < extent.vectors; ++u)
        write_vector<extent.streams>(y + i + u * lanes, load_vector<P>(x + i + u * lanes));
  });
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
