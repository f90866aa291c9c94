#include "memory/pages.h"

#if defined(_WIN32)
#include "declaration/windows_api.h"
#else
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <cstdint>
#include <cstdlib>
#include <cstring>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace tensor_ops {

void return_freed_memory() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

#if defined(_WIN32)

Pages map_pages(std::size_t bytes, std::size_t) {
  constexpr std::size_t kPage = 4096;
  if (bytes > PTRDIFF_MAX - kPage) return {};
  bytes = (bytes + kPage - 1) / kPage * kPage;
  void* const first = VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
  return first ? Pages{first, bytes} : Pages{};
}

void unmap_pages(Pages pages) { VirtualFree(pages.first, 0, MEM_RELEASE); }

void release_mapped_file(const void*, std::size_t) {}

void populate_pages(void*, std::size_t) {}

#else

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

std::uintptr_t round_up(std::uintptr_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

char* map(std::size_t bytes) {
  void* first = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return first == MAP_FAILED ? nullptr : static_cast<char*>(first);
}

// From a multiple of the huge page's size on: maps more, and returns what lies before and after.
char* map_aligned(std::size_t bytes) {
  char* const first = map(bytes + kHugePage);
  if (!first) return map(bytes);
  const auto address = reinterpret_cast<std::uintptr_t>(first);
  const std::size_t before = round_up(address, kHugePage) - address;
  if (before > 0) munmap(first, before);
  munmap(first + before + bytes, kHugePage - before);
  return first + before;
}

#if defined(MADV_HUGEPAGE)
// NumPy's variable for the same question.
bool huge_pages_are_wanted() {
  const char* setting = std::getenv("NUMPY_MADVISE_HUGEPAGE");
  return !setting || std::strcmp(setting, "0") != 0;
}
#endif

void advise_huge_pages([[maybe_unused]] char* first, [[maybe_unused]] std::size_t bytes,
                       [[maybe_unused]] std::size_t used) {
#if defined(MADV_HUGEPAGE)
  static const bool wanted = huge_pages_are_wanted();
  // A huge page becomes resident as a whole, so the last one is taken only where it is nearly used
  // up.
  std::size_t huge = round_up(used, kHugePage);
  if (huge > bytes || huge - used > used / 8) huge = used / kHugePage * kHugePage;
  if (wanted && huge > 0) madvise(first, huge, MADV_HUGEPAGE);
#endif
}

}  // namespace

Pages map_pages(std::size_t bytes, std::size_t used) {
  if (bytes > PTRDIFF_MAX - 2 * kHugePage) return {};
  bytes = round_up(bytes, page_size());
  char* const first = used < kHugePage ? map(bytes) : map_aligned(bytes);
  if (!first) return {};
  advise_huge_pages(first, bytes, used);
  return {first, bytes};
}

void unmap_pages(Pages pages) {
  if (munmap(pages.first, pages.bytes) == 0) return;
#if defined(MADV_DONTNEED)
  // Unmapping would split a mapping, and the process may have no more of them: the memory is freed,
  // and its addresses are kept.
  madvise(pages.first, pages.bytes, MADV_DONTNEED);
#endif
}

void release_mapped_file(const void* first, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(first);
  const std::uintptr_t begin = round_up(address, page_size());
  const std::uintptr_t end = (address + bytes) / page_size() * page_size();
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

void populate_pages([[maybe_unused]] void* first, [[maybe_unused]] std::size_t bytes) {
#if defined(MADV_POPULATE_WRITE)
  const auto begin = reinterpret_cast<std::uintptr_t>(first) / page_size() * page_size();
  const auto end = round_up(reinterpret_cast<std::uintptr_t>(first) + bytes, page_size());
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_WRITE);
#endif
}

#endif

}  // namespace tensor_ops
