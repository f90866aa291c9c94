// What is prefetched while blocks that were unpacked are multiplied.
#pragma once

#include "decode/products/tile.h"
#include "kernels/vector.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// The memory of the blocks that are unpacked next, in `tiles` tiles. It is prefetched a few lines
// at a time between products, so that the loads do not wait for one another.
template <std::size_t tiles>
class NextBlocks {
 public:
  // The blocks take `bytes` from `first` on in the first tile, and as many in each of the others.
  // All are prefetched after `times` calls of prefetch_some().
  NextBlocks(const unsigned char* first, std::size_t bytes, std::size_t tile_bytes,
             std::size_t times)
      : next_(first),
        end_(first + bytes),
        tile_bytes_(tile_bytes),
        bytes_at_a_time_((bytes / kLineBytes / times + 1) * kLineBytes) {}

  TENSOR_OPS_INLINE void prefetch_some() {
    for (const unsigned char* const end = next_ + bytes_at_a_time_; next_ < end;
         next_ += kLineBytes) {
      if (next_ >= end_) return;
      for (std::size_t t = 0; t < tiles; ++t) __builtin_prefetch(next_ + t * tile_bytes_, 0, 2);
    }
  }

 private:
  const unsigned char *next_, *end_;
  std::size_t tile_bytes_, bytes_at_a_time_;
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
