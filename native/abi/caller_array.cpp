#include "abi/caller_array.h"

#include <cstdint>
#include <limits>

#include "declaration/errors.h"

namespace tensor_ops {
namespace {

constexpr bool is_number(int number, DType dtype) { return number == static_cast<int>(dtype); }
static_assert(is_number(TENSOR_OPS_FLOAT32, kFloat32) && is_number(TENSOR_OPS_FLOAT16, kFloat16) &&
              is_number(TENSOR_OPS_BFLOAT16, kBFloat16) && is_number(TENSOR_OPS_FLOAT64, kFloat64));

constexpr std::int64_t kMostBytes = std::numeric_limits<std::ptrdiff_t>::max();

// The distance from an array's first to its last element along one axis; false where no address
// can be as far.
bool reach(std::int64_t extent, std::int64_t stride, std::int64_t* bytes) {
  return !__builtin_mul_overflow(extent - 1, stride, bytes) && *bytes != -kMostBytes - 1;
}

}  // namespace

void CallerArray::read(const char* op, const char* name, const tensor_ops_array& given) {
  if (given.dims < 0 || given.dims > kMaxDims)
    throw ValueError(
        text(op, ": ", name, ".dims must be from 0 to ", kMaxDims, ", got ", given.dims));
  if (given.dims > 0 && !given.shape)
    throw ValueError(text(op, ": ", name, ".shape is a null pointer, and dims is ", given.dims,
                          "; point it to as many lengths"));
  const bool is_known = given.dtype >= 0 && given.dtype < kDTypes;
  dtype = is_known ? static_cast<DType>(given.dtype) : kDTypes;
  const auto item = static_cast<std::int64_t>(is_known ? kItemSizes[dtype] : 1);
  std::int64_t bytes = item, lowest = 0, highest = 0;
  bool fits = true, is_empty = false;
  is_contiguous = true;
  for (int d = given.dims - 1; d >= 0; --d) {
    const std::int64_t extent = given.shape[d];
    if (extent < 0)
      throw ValueError(text(op, ": ", name, ".shape must have no negative length, got ",
                            shape_text(given.dims, given.shape)));
    const std::int64_t stride = given.strides ? given.strides[d] : bytes;
    is_empty = is_empty || extent == 0;
    if (extent > 1) {
      is_contiguous = is_contiguous && stride == bytes;
      std::int64_t distance = 0;
      fits = fits && reach(extent, stride, &distance) &&
             !__builtin_add_overflow(distance < 0 ? lowest : highest, distance,
                                     distance < 0 ? &lowest : &highest);
    }
    if (extent > 0) fits = !__builtin_mul_overflow(bytes, extent, &bytes) && fits;
    own_shape_[d] = static_cast<std::ptrdiff_t>(extent);
    own_strides_[d] = static_cast<std::ptrdiff_t>(stride);
  }
  std::int64_t span = 0;
  fits = fits && !__builtin_sub_overflow(highest, lowest, &span) && span <= kMostBytes - item;
  if (!fits && !is_empty)
    throw ValueError(text(op, ": ", name, " has shape ", shape_text(given.dims, given.shape),
                          ", more than fits into memory"));
  if (!given.data && !is_empty) throw ValueError(text(op, ": ", name, ".data is a null pointer"));
  is_contiguous = is_contiguous || is_empty;
  data = static_cast<char*>(given.data);
  dims = given.dims;
  shape = own_shape_;
  strides = own_strides_;
  given_ = &given;
}

std::string dtype_text(const CallerArray& array) {
  if (array.dtype != kDTypes) return kDTypeNames[array.dtype];
  return text("number ", array.dtype_number());
}

}  // namespace tensor_ops
