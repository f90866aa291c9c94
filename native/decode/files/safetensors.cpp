#include "decode/files/safetensors.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "declaration/errors.h"
#include "decode/program/json_fields.h"

namespace tensor_ops::decode {
namespace {

constexpr std::uint64_t kMostHeader = 8 << 20;  // bytes; enough for fifty thousand tensors
constexpr std::size_t kLengthBytes = 8;

struct DTypeBytes {
  const char* name;
  std::size_t bytes;
};
constexpr DTypeBytes kStoredTypes[] = {{"F32", 4}, {"F16", 2}, {"BF16", 2}, {"U8", 1}};

std::size_t element_bytes(const std::string& where, const std::string& dtype) {
  for (const DTypeBytes& each : kStoredTypes)
    if (dtype == each.name) return each.bytes;
  throw ValueError(text(where, ": dtype must be F32, F16, BF16 or U8, got '", dtype, "'"));
}

// An offset or a size. Those of files can be larger than Fields::as_size() allows.
std::uint64_t as_offset(const Json& json, const std::string& where) {
  if (json.kind != Json::Kind::kNumber || !json.is_integer || json.integer < 0)
    throw ValueError(where + " must be an integer, 0 or larger");
  return static_cast<std::uint64_t>(json.integer);
}

struct Place {
  std::uint64_t begin, end;
  std::string name;
};

class HeaderReader {
 public:
  explicit HeaderReader(const MappedFile& file) : file_(file) {}

  Safetensors read() {
    if (file_.size() < kLengthBytes) throw ValueError("the file is shorter than 8 bytes");
    const std::uint64_t most = std::min<std::uint64_t>(kMostHeader, file_.size() - kLengthBytes);
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < kLengthBytes; ++i)
      length |= std::uint64_t{file_.data()[i]} << (8 * i);
    if (length > most)
      throw ValueError(text("the header must have at most ", most, " bytes, got ", length));
    data_ = kLengthBytes + static_cast<std::size_t>(length);
    const Json header =
        parse_json(file_.text().substr(kLengthBytes, data_ - kLengthBytes), "the header");
    Fields::require(header, Json::Kind::kObject, "the header");
    for (std::size_t i = 0; i < header.keys.size(); ++i) {
      if (header.keys[i] == "__metadata__")
        read_metadata(header.items[i]);
      else
        read_tensor(header.keys[i], header.items[i]);
    }
    require_whole();
    return std::move(made_);
  }

 private:
  void read_metadata(const Json& json) {
    Fields::require(json, Json::Kind::kObject, "__metadata__");
    for (std::size_t i = 0; i < json.keys.size(); ++i)
      made_.metadata[json.keys[i]] =
          Fields::require(json.items[i], Json::Kind::kString, "__metadata__: " + json.keys[i])
              .string;
  }

  void read_tensor(const std::string& name, const Json& json) {
    const std::string where = text("tensor '", name, "'");
    const Fields fields(json, where, {"dtype", "shape", "data_offsets"});
    StoredTensor tensor{fields.string("dtype"), {}, nullptr, 0};
    std::uint64_t bytes = element_bytes(where, tensor.dtype);
    for (const Json& each : fields.at("shape", Json::Kind::kArray).items) {
      tensor.shape.push_back(Fields::as_size(each, where + ": shape"));
      if (__builtin_mul_overflow(bytes, std::uint64_t{tensor.shape.back()}, &bytes))
        throw ValueError(where + ": its size in bytes is more than any memory");
    }
    const std::vector<Json>& offsets = fields.at("data_offsets", Json::Kind::kArray).items;
    if (offsets.size() != 2) throw ValueError(where + ": data_offsets must have two offsets");
    const std::uint64_t begin = as_offset(offsets[0], where + ": data_offsets"),
                        end = as_offset(offsets[1], where + ": data_offsets");
    if (end < begin || end - begin != bytes)
      throw ValueError(
          text(where, ": data_offsets must be ", bytes, " bytes apart, got ", begin, " and ", end));
    if (end > file_.size() - data_)
      throw ValueError(text(where, ": ends at byte ", end, " of the data, of which the file has ",
                            file_.size() - data_, "; it is truncated"));
    tensor.first = file_.data() + data_ + static_cast<std::size_t>(begin);
    tensor.bytes = static_cast<std::size_t>(bytes);
    places_.push_back({begin, end, name});
    made_.tensors.emplace(name, std::move(tensor));
  }

  // The tensors lie one behind the other, up to the end of the file.
  void require_whole() {
    std::sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    std::uint64_t end = 0;
    for (const Place& place : places_) {
      if (place.begin != end)
        throw ValueError(text("tensor '", place.name, "' must begin at byte ", end,
                              " of the data, where the one before ends, got ", place.begin));
      end = place.end;
    }
    if (end != file_.size() - data_)
      throw ValueError(text("the tensors have ", end, " bytes, and the file has ",
                            file_.size() - data_, " bytes of data"));
  }

  const MappedFile& file_;
  std::size_t data_ = 0;  // where it begins
  std::vector<Place> places_;
  Safetensors made_;
};

}  // namespace

Safetensors read_safetensors(const MappedFile& file) { return HeaderReader(file).read(); }

}  // namespace tensor_ops::decode
