// Files that are no files of a model are refused with what they are, and others are mapped.
#include "decode/files/mapped_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "declaration/errors.h"
#include "require.h"

namespace {

using tensor_ops::decode::MappedFile;

// A folder that is there until the end of the program.
struct Folder {
  char path[24] = "/tmp/mapped_file_XXXXXX";
  Folder() { require(mkdtemp(path) != nullptr, "no folder could be made"); }
  ~Folder() { require(std::system(("rm -r " + std::string(path)).c_str()) == 0, "it stays"); }
};

std::string error_of(const std::string& path) {
  try {
    const MappedFile file(path);
  } catch (const tensor_ops::ValueError& error) {
    return error.what();
  }
  return "";
}

void check_error(const std::string& path, const std::string& expected) {
  const std::string found = error_of(path);
  require(found.find(path + ": ") == 0 && found.find(expected) != std::string::npos, "'", found,
          "' is not about ", expected);
}

}  // namespace

int main() {
  const Folder folder;
  const std::string path = std::string(folder.path) + "/file";
  const auto write = [&path](const std::string& text) { std::ofstream(path) << text; };

  check_error(path, "cannot be opened");
  for (const char* text : {"{}", "version 1", "<htm", " <html>"}) {
    write(text);
    require(MappedFile(path).text() == text, "'", text, "' is mapped");
  }
  write("");
  check_error(path, "the file is empty");
  write("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
  check_error(path, "a pointer of git LFS to it; run 'git lfs pull'");
  for (const char* text : {"<!DOCTYPE html>", "<html lang=en>"}) {
    write(text);
    check_error(path, "an HTML page");
  }
  require(unlink(path.c_str()) == 0 && mkfifo(path.c_str(), 0600) == 0, "no pipe could be made");
  check_error(path, "is no file");
  check_error(folder.path, "is no file");
}
