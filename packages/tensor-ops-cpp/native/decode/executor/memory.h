// Zeroed memory in whole pages.
#pragma once

#include <cstddef>
#include <memory>

#include "memory/pages.h"

namespace tensor_ops::decode {

class Memory {
 public:
  Memory() = default;
  // Throws MemoryError that says how much is wanted, and for what.
  Memory(std::size_t bytes, const char* for_what);
  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept {
    std::swap(pages_, other.pages_);
    return *this;
  }
  ~Memory() {
    if (pages_.first) unmap_pages(pages_);
  }

  unsigned char* data() const { return static_cast<unsigned char*>(pages_.first); }

 private:
  Pages pages_;
};

}  // namespace tensor_ops::decode
