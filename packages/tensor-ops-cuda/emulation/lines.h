// Device memory as one block sees it between an acquire and a release: bytes that differ from what
// is in memory, or that may.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace emulation {

// Some bytes of memory, in a hash table of lines of 64. Clearing it takes no time.
class Lines {
 public:
  static constexpr std::size_t kBytes = 64;

  struct Line {
    std::uintptr_t number = 0;  // the address divided by kBytes
    std::uint64_t present = 0;  // a bit for each byte
    unsigned round = 0;         // in which it was made; others are empty slots
    unsigned char bytes[kBytes];
  };

  // Null where no byte of the line is present.
  const Line* find(std::uintptr_t number) const;
  // Adds an empty line where there is none. The reference is valid until the next call.
  Line& at(std::uintptr_t number);
  void clear();

  template <class Use>
  void for_each(Use use) const {
    for (const std::size_t slot : used_) use(lines_[slot]);
  }

 private:
  std::size_t slot_of(std::uintptr_t number) const;
  void grow();

  std::vector<Line> lines_;        // a power of two of slots, at most half of them in use
  std::vector<std::size_t> used_;  // which slots are
  unsigned round_ = 1;
};

// A block's writes that are not released, and its reads since it last acquired.
class BlockMemory {
 public:
  void write(void* to, const void* value, std::size_t bytes);
  void read(void* value, const void* from, std::size_t bytes);
  // Makes all that was written visible to the others.
  void release();
  // Forgets what was read, so that the next reads see what others have released.
  void acquire() { reads_.clear(); }

 private:
  void fetch(Lines::Line& line, std::uint64_t wanted) const;

  Lines writes_, reads_;
};

}  // namespace emulation
