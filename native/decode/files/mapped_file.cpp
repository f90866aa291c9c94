#include "decode/files/mapped_file.h"

#if defined(_WIN32)
#include "declaration/windows_api.h"
#else
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <vector>

#include "declaration/errors.h"

namespace tensor_ops::decode {
namespace {

[[noreturn]] void refuse_file(const std::string& path, const std::string& reason) {
  throw ValueError(path + ": " + reason);
}

[[noreturn]] void refuse_file(const std::string& path, const char* what, int error) {
  refuse_file(path, text(what, ": ", std::system_category().message(error)));
}

// Refuses what a clone or a download may have left in the place of a file.
void refuse_stand_in(const std::string& path, std::string_view file) {
  std::string begin(file.substr(0, 64));
  for (char& each : begin)
    if (each >= 'A' && each <= 'Z') each = static_cast<char>(each - 'A' + 'a');
  const auto begins_with = [&begin](std::string_view word) { return begin.rfind(word, 0) == 0; };
  if (begins_with("version https://git-lfs.github.com/spec/"))
    refuse_file(path,
                "the file is a pointer of git LFS to it; run 'git lfs pull' in its repository");
  if (begins_with("<!doctype html") || begins_with("<html"))
    refuse_file(path, "the file is an HTML page; download it again");
}

// Closes a file at the end of a scope.
template <class Handle, class Close>
struct ClosedFile {
  Handle handle;
  Close close;
  ~ClosedFile() { close(handle); }
};
template <class Handle, class Close>
ClosedFile(Handle, Close) -> ClosedFile<Handle, Close>;

}  // namespace

MappedFile::MappedFile(const std::string& path) : MappedFile(path, Mapped{}) {
  refuse_stand_in(path, text());
}

#if defined(_WIN32)

MappedFile::MappedFile(const std::string& path, Mapped) : path_(path) {
  const auto last_error = [] { return static_cast<int>(GetLastError()); };
  std::vector<wchar_t> wide(path.size() + 1);
  if (MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path.c_str(), -1, wide.data(),
                          static_cast<int>(wide.size())) == 0)
    refuse_file(path, "the path is not UTF-8");
  const ClosedFile file{CreateFileW(wide.data(), GENERIC_READ, FILE_SHARE_READ, nullptr,
                                    OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr),
                        [](HANDLE handle) { CloseHandle(handle); }};
  if (file.handle == INVALID_HANDLE_VALUE) refuse_file(path, "cannot be opened", last_error());
  LARGE_INTEGER size;
  if (!GetFileSizeEx(file.handle, &size)) refuse_file(path, "cannot be read", last_error());
  if (size.QuadPart == 0) refuse_file(path, "the file is empty");
  const ClosedFile mapping{CreateFileMappingW(file.handle, nullptr, PAGE_READONLY, 0, 0, nullptr),
                           [](HANDLE handle) { CloseHandle(handle); }};
  if (!mapping.handle) refuse_file(path, "cannot be mapped", last_error());
  data_ = static_cast<const unsigned char*>(MapViewOfFile(mapping.handle, FILE_MAP_READ, 0, 0, 0));
  if (!data_) refuse_file(path, "cannot be mapped", last_error());
  size_ = static_cast<std::size_t>(size.QuadPart);
}

MappedFile::~MappedFile() { UnmapViewOfFile(data_); }

#else

MappedFile::MappedFile(const std::string& path, Mapped) : path_(path) {
  // Not blocking: to open a pipe would wait for somebody to write to it.
  const ClosedFile file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK), [](int descriptor) {
                          if (descriptor >= 0) close(descriptor);
                        }};
  if (file.handle < 0) refuse_file(path, "cannot be opened", errno);
  struct stat status;
  if (fstat(file.handle, &status) != 0) refuse_file(path, "cannot be read", errno);
  if (!S_ISREG(status.st_mode)) refuse_file(path, "is no file");
  if (status.st_size == 0) refuse_file(path, "the file is empty");
  const auto size = static_cast<std::size_t>(status.st_size);
  void* const first = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.handle, 0);
  if (first == MAP_FAILED) refuse_file(path, "cannot be mapped", errno);
  data_ = static_cast<const unsigned char*>(first);
  size_ = size;
}

MappedFile::~MappedFile() { munmap(const_cast<unsigned char*>(data_), size_); }

#endif

}  // namespace tensor_ops::decode
