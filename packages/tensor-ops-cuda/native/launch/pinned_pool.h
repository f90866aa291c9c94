// Host memory that devices reach by themselves. It is slow to come by, so that what is given back
// is kept for the next call.
#pragma once

#include <cstddef>

namespace tensor_ops {

// Null where the system pins no more memory, or a quarter of it is in use already. Needs a usable
// device to be current.
void* take_pinned(std::size_t bytes);
void give_back_pinned(void* data);

struct PinnedPoolState {
  std::size_t limit;  // bytes that may be kept; 0: none
  std::size_t held_bytes, held_blocks;
  std::size_t used_bytes, used_blocks;
  std::size_t hits, misses;
};

PinnedPoolState pinned_pool_state();
void set_pinned_pool_limit(std::size_t bytes);
// Gives all that is kept back to the system; how many bytes that were.
std::size_t trim_pinned_pool();

// Memory for as long as the object lives; none where it cannot be had.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  explicit PinnedMemory(std::size_t bytes) : data_(take_pinned(bytes)) {}
  PinnedMemory(PinnedMemory&& other) noexcept : data_(other.data_) { other.data_ = nullptr; }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    void* data = data_;
    data_ = other.data_;
    other.data_ = data;
    return *this;
  }
  ~PinnedMemory() {
    if (data_) give_back_pinned(data_);
  }

  char* data() const { return static_cast<char*>(data_); }

 private:
  void* data_ = nullptr;
};

}  // namespace tensor_ops
