// A file that is mapped into memory, to be read.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tensor_ops::decode {

// The system reads a page of the file when it is first used, and may drop it again. Another program
// that truncates the file meanwhile ends this process; files of models are replaced by renaming.
class MappedFile {
 public:
  // path: UTF-8. Throws ValueError, with the path, where there is no file that can be read, or an
  // empty one, a pointer of git LFS or an HTML page.
  explicit MappedFile(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  const unsigned char* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  // Maps a file, whatever it is: once this has returned, an error unmaps it.
  struct Mapped {};
  MappedFile(const std::string& path, Mapped);

  const std::string path_;
  const unsigned char* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace tensor_ops::decode
