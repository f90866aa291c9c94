// The caches of keys and values: blocks of 16 positions of one head, and what they keep numbers as.
#pragma once

#include "decode/executor/share.h"
#include "kernels/memory.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// Positions are taken in blocks of this size, at every level and from the same places on, so that
// the sums of a query do not depend on what else is computed.
constexpr std::size_t kBlock = decode::kCacheBlock;
constexpr std::size_t kBlockVectors = kBlock / kLanes<float>;

// The nearest integer, the even one of two, of a number of less than 2^22.
TENSOR_OPS_INLINE float whole(float x) {
  constexpr float kShift = 0x1.8p23f;
  return (x + kShift) - kShift;
}

// The largest magnitude of some numbers, found by their bits: a NaN counts as the largest.
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

// The part of a cache with `width` positions of a head.
template <class Element>
struct CacheBlock {
  using T = typename Element::Storage;
  decode::CacheMemory::Block at;
  std::size_t width, size;  // of the head

  // One whose values follow its keys.
  static TENSOR_OPS_INLINE CacheBlock in(unsigned char* memory, std::size_t width,
                                         std::size_t size) {
    return {{memory, memory + width * size * sizeof(T)}, width, size};
  }
  TENSOR_OPS_INLINE T* keys() const { return reinterpret_cast<T*>(at.keys); }
  TENSOR_OPS_INLINE T* values() const { return reinterpret_cast<T*>(at.values); }

  // Writes the key and the value of one of its positions.
  void store(std::size_t place, const float* key, const float* value) const {
    for (std::size_t d = 0; d < size; ++d) keys()[d * width + place] = Element::store(key[d]);
    for (std::size_t d = 0; d < size; ++d) values()[place * size + d] = Element::store(value[d]);
  }

  // Copies `count` positions of another block to places from this one on.
  void copy(std::size_t place, const CacheBlock& other, std::size_t from, std::size_t count) const {
    for (std::size_t d = 0; d < size; ++d)
      for (std::size_t p = 0; p < count; ++p)
        keys()[d * width + place + p] = other.keys()[d * other.width + from + p];
    __builtin_memcpy(values() + place * size, other.values() + from * size,
                     count * size * sizeof(T));
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
  decode::CacheMemory::Block at;
  std::size_t width, size;  // of the head

  static TENSOR_OPS_INLINE CacheBlock in(unsigned char* memory, std::size_t width,
                                         std::size_t size) {
    return {{memory, memory + kBlock * (size + size % 2)}, width, size};
  }
  TENSOR_OPS_INLINE std::int8_t* keys() const { return reinterpret_cast<std::int8_t*>(at.keys); }
  TENSOR_OPS_INLINE std::int8_t* values() const {
    return reinterpret_cast<std::int8_t*>(at.values);
  }
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

  void copy(std::size_t place, const CacheBlock& other, std::size_t from, std::size_t count) const {
    const std::size_t scales = decode::scales_of(size);
    for (std::size_t p = place, q = from; q < from + count; ++p, ++q) {
      for (std::size_t pair = 0; pair < (size + 1) / 2; ++pair)
        __builtin_memcpy(keys() + 2 * (pair * kBlock + p), other.keys() + 2 * (pair * kBlock + q),
                         2);
      std::int8_t* const to = values() + p / 2 * (2 * size) + p % 2;
      const std::int8_t* const value = other.values() + q / 2 * (2 * size) + q % 2;
      for (std::size_t d = 0; d < size; ++d) to[2 * d] = value[2 * d];
      for (std::size_t g = 0; g < 2 * scales; ++g)  // those of keys, then those of values
        key_scales()[g * kBlock + p] = other.key_scales()[g * kBlock + q];
    }
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

// The keys and values of a slot's positions for one head.
template <class Element>
class HeadCache {
 public:
  TENSOR_OPS_INLINE HeadCache(const decode::CacheMemory& cache, const std::int32_t* pages,
                              std::size_t slot, std::size_t head)
      : cache_(cache),
        pages_(pages),
        slot_(slot),
        head_(head),
        position_bytes_(
            decode::position_bytes(kCacheType<Element>, cache.head_size, cache.head_size)) {}

  TENSOR_OPS_INLINE std::size_t block_bytes() const { return kBlock * position_bytes_; }

  // The block of a position.
  TENSOR_OPS_INLINE CacheBlock<Element> block_of(std::size_t position) const {
    decode::CacheMemory::Stretch pages{};
    return block_at(position / cache_.page_size, position % cache_.page_size / kBlock * kBlock,
                    pages);
  }

  // visit(first, block) of 16 positions at a time, from `first`, a multiple of 16, up to `end`. The
  // block's keys are null where they are not one block, from its first place on.
  template <class Visit>
  TENSOR_OPS_INLINE void for_blocks(std::size_t first, std::size_t end, Visit visit) const {
    std::size_t number = first / cache_.page_size, place = first % cache_.page_size;
    decode::CacheMemory::Stretch pages{};
    for (; first < end; first += kBlock) {
      const bool is_block = place % kBlock == 0 && cache_.page_size - place >= kBlock;
      visit(first, is_block ? block_at(number, place, pages).at : decode::CacheMemory::Block{});
      for (place += kBlock; place >= cache_.page_size; place -= cache_.page_size) ++number;
    }
  }

  // Copies positions from `from` up to `end` to their places in a block at `to`, which it returns.
  decode::CacheMemory::Block assemble(std::size_t from, std::size_t end, unsigned char* to) const {
    const auto block = CacheBlock<Element>::in(to, kBlock, cache_.head_size);
    while (from < end) {
      const CacheBlock<Element> part = block_of(from);
      const std::size_t place = from % cache_.page_size % kBlock;
      const std::size_t wide = width(from % cache_.page_size - place) - place;
      const std::size_t count = wide < end - from ? wide : end - from;
      block.copy(from % kBlock, part, place, count);
      from += count;
    }
    return block.at;
  }

 private:
  // The block that begins at a place of one of the slot's pages. `pages` is replaced by the stretch
  // of that page if it is another one.
  TENSOR_OPS_INLINE CacheBlock<Element> block_at(std::size_t number, std::size_t place,
                                                 decode::CacheMemory::Stretch& pages) const {
    const std::size_t page = cache_.is_paged ? static_cast<std::size_t>(pages_[number]) : slot_;
    if (!pages.has(page)) pages = cache_.stretch(page, head_);
    if (cache_.has_groups) return {cache_.block(pages, page, place), kBlock, cache_.head_size};
    return CacheBlock<Element>::in(cache_.page(pages, page) + place * position_bytes_, width(place),
                                   cache_.head_size);
  }
  // How many positions of a page are in the block that begins at its position `first`.
  TENSOR_OPS_INLINE std::size_t width(std::size_t first) const {
    return cache_.page_size - first < kBlock ? cache_.page_size - first : kBlock;
  }

  const decode::CacheMemory& cache_;
  const std::int32_t* const pages_;
  const std::size_t slot_, head_, position_bytes_;
};

// The blocks of a range of positions. They begin at multiples of 16 whatever the size of a page is,
// so that sums have one order: positions that are not one block of the cache are copied into one.
struct RangeBlocks {
  struct Seen {
    decode::CacheMemory::Block at;
    std::uint32_t from, end;  // the lanes whose positions are seen
  };
  std::size_t pair, range;  // the range is this one of this pair
  std::size_t count = 0;
  Seen block[decode::kMostBlocks];
  unsigned char* assembled = nullptr;  // memory for blocks that are not whole in the cache

  template <class Element>
  void fill(const HeadCache<Element>& cache, std::size_t begin, std::size_t end) {
    count = 0;
    cache.for_blocks(
        begin / kBlock * kBlock, end,
        [&](std::size_t first, decode::CacheMemory::Block at) TENSOR_OPS_INLINE_LAMBDA {
          const std::size_t from = begin > first ? begin - first : 0;
          const std::size_t to = end - first < kBlock ? end - first : kBlock;
          if (!at.keys)
            at = cache.assemble(first + from, first + to, assembled + count * cache.block_bytes());
          block[count++] = {at, static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to)};
        });
  }
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
