#include "lines.h"

#include <algorithm>
#include <cstring>

namespace emulation {
namespace {

// Calls use(line number, offset in the line, offset in the range, bytes) for every line of a range.
template <class Use>
void for_each_line(const void* data, std::size_t bytes, Use use) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t offset = (address + done) % Lines::kBytes;
    const std::size_t count = std::min(bytes - done, Lines::kBytes - offset);
    use((address + done) / Lines::kBytes, offset, done, count);
    done += count;
  }
}

std::uint64_t mask_of(std::size_t offset, std::size_t count) {
  const std::uint64_t ones = count == Lines::kBytes ? ~0ull : (1ull << count) - 1;
  return ones << offset;
}

unsigned char* memory_of(const Lines::Line& line) {
  return reinterpret_cast<unsigned char*>(line.number * Lines::kBytes);
}

}  // namespace

// The slot of the line, or the empty one where it would be.
std::size_t Lines::slot_of(std::uintptr_t number) const {
  const std::size_t mask = lines_.size() - 1;
  std::size_t slot = static_cast<std::size_t>(number * 0x9e3779b97f4a7c15ull >> 32) & mask;
  while (lines_[slot].round == round_ && lines_[slot].number != number) slot = (slot + 1) & mask;
  return slot;
}

const Lines::Line* Lines::find(std::uintptr_t number) const {
  if (used_.empty()) return nullptr;
  const Line& line = lines_[slot_of(number)];
  return line.round == round_ ? &line : nullptr;
}

Lines::Line& Lines::at(std::uintptr_t number) {
  if (2 * (used_.size() + 1) > lines_.size()) grow();
  const std::size_t slot = slot_of(number);
  Line& line = lines_[slot];
  if (line.round != round_) {
    line.number = number;
    line.present = 0;
    line.round = round_;
    used_.push_back(slot);
  }
  return line;
}

void Lines::clear() {
  used_.clear();
  ++round_;
}

void Lines::grow() {
  std::vector<Line> before(std::max<std::size_t>(64, 2 * lines_.size()));
  before.swap(lines_);
  std::vector<std::size_t> slots;
  slots.swap(used_);
  for (const std::size_t slot : slots) at(before[slot].number) = before[slot];
}

void BlockMemory::write(void* to, const void* value, std::size_t bytes) {
  for_each_line(to, bytes, [&](auto number, auto offset, auto done, auto count) {
    // A block reads its own writes from its cache, also after the release.
    for (Lines* lines : {&writes_, &reads_}) {
      Lines::Line& line = lines->at(number);
      std::memcpy(line.bytes + offset, static_cast<const char*>(value) + done, count);
      line.present |= mask_of(offset, count);
    }
  });
}

void BlockMemory::read(void* value, const void* from, std::size_t bytes) {
  for_each_line(from, bytes, [&](auto number, auto offset, auto done, auto count) {
    Lines::Line& line = reads_.at(number);
    const std::uint64_t wanted = mask_of(offset, count);
    if ((line.present & wanted) != wanted) fetch(line, wanted & ~line.present);
    std::memcpy(static_cast<char*>(value) + done, line.bytes + offset, count);
  });
}

void BlockMemory::fetch(Lines::Line& line, std::uint64_t wanted) const {
  const Lines::Line* const own = writes_.find(line.number);
  const unsigned char* const memory = memory_of(line);
  for (std::size_t i = 0; i < Lines::kBytes; ++i) {
    if (!(wanted >> i & 1)) continue;
    line.bytes[i] = own && own->present >> i & 1 ? own->bytes[i] : memory[i];
  }
  line.present |= wanted;
}

void BlockMemory::release() {
  writes_.for_each([](const Lines::Line& line) {
    unsigned char* const memory = memory_of(line);
    for (std::size_t i = 0; i < Lines::kBytes; ++i)
      if (line.present >> i & 1) memory[i] = line.bytes[i];
  });
  writes_.clear();
}

}  // namespace emulation
