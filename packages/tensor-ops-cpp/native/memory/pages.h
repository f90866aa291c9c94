// Memory from the system, in whole pages.
#pragma once

#include <cstddef>

#include "declaration/shared.h"

namespace tensor_ops {

// Zeroed pages of at least the wanted size; none where the system has no memory for them. Huge
// pages are asked for where the first `used` bytes fill them.
struct Pages {
  void* first = nullptr;
  std::size_t bytes = 0;
};
Pages map_pages(std::size_t bytes, std::size_t used);

void unmap_pages(Pages pages);

// Gives back the memory of a file that is mapped for reading alone; it is read again where it is
// needed. Windows takes such memory back by itself, when it needs it.
void release_mapped_file(const void* first, std::size_t bytes);

// Makes pages resident that are about to be written: once for all instead of fault by fault. Where
// the system cannot, writing does.
TENSOR_OPS_SHARED void populate_pages(void* first, std::size_t bytes);

// Has malloc give back to the system the pages of what was freed, which glibc may keep for itself.
TENSOR_OPS_SHARED void return_freed_memory();

}  // namespace tensor_ops
