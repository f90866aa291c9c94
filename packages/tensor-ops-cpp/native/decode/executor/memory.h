// Zeroed memory in whole pages.
#pragma once

#include <cstddef>
#include <utility>

#include "declaration/errors.h"
#include "memory/pages.h"

namespace tensor_ops::decode {

class Memory {
 public:
  Memory() = default;
  // Throws MemoryError that says how much is wanted, and for what.
  Memory(std::size_t bytes, const char* for_what) {
    if (bytes == 0) return;
    pages_ = map_pages(bytes, bytes);
    if (!pages_.first)
      throw MemoryError(text("compile_program: no memory for ", for_what, ": ", bytes, " bytes"));
  }
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
