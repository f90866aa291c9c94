// The caches of keys and values: blocks of 16 positions of one head, and what they keep numbers as.
#pragma once

#include "decode/share.h"
#include "kernels/memory.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// Positions are taken in blocks of so many, at every level and from the same places on: the sums
// of a query do not depend on what else is computed.
constexpr std::size_t kBlock = decode::kCacheBlock;
constexpr std::size_t kBlockVectors = kBlock / kLanes<float>;

// The nearest integer, the even one of two, of a number of less than 2^22.
TENSOR_OPS_INLINE float whole(float x) {
  constexpr float kShift = 0x1.8p23f;
  return (x + kShift) - kShift;
}

// The largest magnitude of some numbers, found by their bits: those of NaN are the largest.
TENSOR_OPS_INLINE float largest_magnitude(const float* from, std::size_t count) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t magnitude = bit_cast<std::uint32_t>(from[i]) & 0x7FFFFFFFu;
    largest = magnitude > largest ? magnitude : largest;
  }
  return bit_cast<float>(largest);
}

template <class Element>
constexpr decode::CacheType kCacheType =
    is_half<Element> ? decode::CacheType::kFloat16 : decode::CacheType::kFloat32;

// The part of a cache that `width` positions of a head have.
template <class Element>
struct CacheBlock {
  using T = typename Element::Storage;
  unsigned char* first;
  std::size_t width, size;  // of the head

  TENSOR_OPS_INLINE T* keys() const { return reinterpret_cast<T*>(first); }
  TENSOR_OPS_INLINE T* values() const { return keys() + width * size; }

  // Writes the key and the value of one of its positions.
  void store(std::size_t place, const float* key, const float* value) const {
    for (std::size_t d = 0; d < size; ++d) keys()[d * width + place] = Element::store(key[d]);
    for (std::size_t d = 0; d < size; ++d) values()[place * size + d] = Element::store(value[d]);
  }
};

// Integers that a scale multiplies.
struct Int8 {
  using Storage = std::int8_t;
};
template <>
constexpr decode::CacheType kCacheType<Int8> = decode::CacheType::kInt8;

template <>
struct CacheBlock<Int8> {
  unsigned char* first;
  std::size_t width, size;  // of the head

  TENSOR_OPS_INLINE std::int8_t* keys() const { return reinterpret_cast<std::int8_t*>(first); }
  TENSOR_OPS_INLINE std::int8_t* values() const { return keys() + kBlock * (size + size % 2); }
  TENSOR_OPS_INLINE std::uint16_t* key_scales() const {
    return reinterpret_cast<std::uint16_t*>(values() + kBlock * size);
  }
  TENSOR_OPS_INLINE std::uint16_t* value_scales() const {
    return key_scales() + kBlock * decode::scales_of(size);
  }

  void store(std::size_t place, const float* key, const float* value) const {
    std::int8_t* const to_keys = keys() + 2 * place;
    store_scaled(key, key_scales() + place, [&](std::size_t d, std::int8_t kept) {
      to_keys[d / 2 * (2 * kBlock) + d % 2] = kept;
    });
    std::int8_t* const to_values = values() + place / 2 * (2 * size) + place % 2;
    store_scaled(value, value_scales() + place,
                 [&](std::size_t d, std::int8_t kept) { to_values[2 * d] = kept; });
  }

 private:
  // The scale of some elements is their largest magnitude / 127 in float16. Where that is no finite
  // number, or zero, the integers are zero: infinity and NaN make NaN of all.
  template <class Keep>
  TENSOR_OPS_INLINE void store_scaled(const float* from, std::uint16_t* scales, Keep keep) const {
    for (std::size_t begin = 0; begin < size; begin += decode::kScaledElements, scales += kBlock) {
      const std::size_t left = size - begin;
      const std::size_t end =
          begin + (left < decode::kScaledElements ? left : decode::kScaledElements);
      *scales = Float16::store(largest_magnitude(from + begin, end - begin) / 127.0f);
      const float scale = Float16::load(*scales);
      const bool is_ordinary = scale > 0 && scale <= 65504.0f;
      for (std::size_t d = begin; d < end; ++d) {
        const float steps = is_ordinary ? from[d] / scale : 0.0f;
        keep(d, static_cast<std::int8_t>(whole(steps < -127.0f  ? -127.0f
                                               : steps > 127.0f ? 127.0f
                                                                : steps)));
      }
    }
  }
};

// What is kept of a slot's positions for one head.
template <class Element>
class HeadCache {
 public:
  TENSOR_OPS_INLINE HeadCache(const decode::CacheMemory& cache, const std::int32_t* pages,
                              std::size_t slot, std::size_t head)
      : cache_(cache), pages_(pages), slot_(slot) {
    const std::size_t kept = decode::kept_positions(kCacheType<Element>, cache.page_size);
    position_bytes_ = decode::position_bytes(kCacheType<Element>, cache.head_size);
    page_bytes_ = kept * position_bytes_;
    first_ = cache.data + head * cache.num_pages * page_bytes_;
  }

  // The block of a position.
  TENSOR_OPS_INLINE CacheBlock<Element> block_of(std::size_t position) const {
    const std::size_t first = position % cache_.page_size / kBlock * kBlock;
    return {page(position / cache_.page_size) + first * position_bytes_, width(first),
            cache_.head_size};
  }

  // visit(first byte, width, first lane, end lane) of each block with positions from `begin` up to
  // `end`, in order.
  template <class Visit>
  TENSOR_OPS_INLINE void for_blocks(std::size_t begin, std::size_t end, Visit visit) const {
    const std::size_t page_size = cache_.page_size;
    std::size_t number = begin / page_size;
    for (std::size_t base = number * page_size; base < end; base += page_size, ++number) {
      const std::size_t from = begin > base ? begin - base : 0;
      const std::size_t to = end - base < page_size ? end - base : page_size;
      unsigned char* const bytes = page(number);
      for (std::size_t first = from / kBlock * kBlock; first < to; first += kBlock)
        visit(bytes + first * position_bytes_, width(first), from > first ? from - first : 0,
              to - first < kBlock ? to - first : kBlock);
    }
  }

 private:
  TENSOR_OPS_INLINE unsigned char* page(std::size_t number) const {
    return first_ +
           page_bytes_ * (cache_.is_paged ? static_cast<std::size_t>(pages_[number]) : slot_);
  }
  TENSOR_OPS_INLINE std::size_t width(std::size_t first) const {
    return cache_.page_size - first < kBlock ? cache_.page_size - first : kBlock;
  }

  const decode::CacheMemory& cache_;
  const std::int32_t* const pages_;
  const std::size_t slot_;
  unsigned char* first_;
  std::size_t position_bytes_, page_bytes_;
};

// The blocks of a range of positions.
struct RangeBlocks {
  struct Seen {
    unsigned char* first;
    std::uint32_t width, from, end;  // of its lanes those that are seen
  };
  std::size_t pair, range;  // which one it is
  std::size_t count = 0;
  Seen block[decode::kMostBlocks];

  template <class Element>
  void fill(const HeadCache<Element>& cache, std::size_t begin, std::size_t end) {
    count = 0;
    cache.for_blocks(begin, end,
                     [&](unsigned char* first, std::size_t width, std::size_t from, std::size_t to)
                         TENSOR_OPS_INLINE_LAMBDA {
                           block[count++] = {first, static_cast<std::uint32_t>(width),
                                             static_cast<std::uint32_t>(from),
                                             static_cast<std::uint32_t>(to)};
                         });
  }
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
