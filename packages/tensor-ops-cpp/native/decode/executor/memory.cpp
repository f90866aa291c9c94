#include "decode/executor/memory.h"

#include "declaration/errors.h"

namespace tensor_ops::decode {

Memory::Memory(std::size_t bytes, const char* for_what) {
  if (bytes == 0) return;
  pages_ = map_pages(bytes, bytes);
  if (!pages_.first)
    throw MemoryError(text("compile_program: no memory for ", for_what, ": ", bytes, " bytes"));
}

}  // namespace tensor_ops::decode
