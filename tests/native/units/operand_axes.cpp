// Axes of operands: what repeats, which axes are walked as one, and which rows.
#include "declaration/operand_axes.h"

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "require.h"

using namespace tensor_ops;

namespace {

// The types of either backend.
template <class Size, class Stride>
struct Operand {
  char* data;
  Size length;
  Stride element_stride;
  Stride stride[4];
};

char memory[1];

template <class Size, class Stride>
struct Axes {
  using Each = Operand<Size, Stride>;
  Size n;
  std::vector<Size> extent;
  std::vector<Each> operands;

  void add(std::initializer_list<Stride> strides, Stride element_stride, bool is_given = true) {
    Each each{is_given ? memory : nullptr, n, element_stride, {}};
    std::copy(strides.begin(), strides.end(), each.stride);
    operands.push_back(each);
  }
  void merge() {
    extent.resize(
        static_cast<std::size_t>(merge_axes(extent.data(), static_cast<int>(extent.size()),
                                            operands.data(), static_cast<int>(operands.size()))));
  }
  void merge_to_rows() {
    extent.resize(
        static_cast<std::size_t>(merge_rows(n, extent.data(), static_cast<int>(extent.size()),
                                            operands.data(), static_cast<int>(operands.size()))));
  }
};

template <class Size, class Stride>
void check_axes() {
  using All = Axes<Size, Stride>;

  // Contiguous rows of 5 floats become one row; axes of length 1 go, whatever their stride.
  All contiguous{5, {2, 1, 3}, {}};
  contiguous.add({60, 7, 20}, 4);
  contiguous.merge();
  require(contiguous.extent == std::vector<Size>{6}, "axes of length 1");
  require(contiguous.operands[0].stride[0] == 20, "their stride");
  contiguous.merge_to_rows();
  require(contiguous.extent.empty() && contiguous.n == 30, "one row of all");
  require(contiguous.operands[0].length == 30, "its length");

  // Axes that one operand does not walk as one stay apart, here the outer axis of a row that
  // repeats along it.
  All repeated{5, {2, 3, 4}, {}};
  repeated.add({240, 80, 20}, 4);
  repeated.add({0, 80, 20}, 4);
  repeated.merge();
  require(repeated.extent == std::vector<Size>{2, 12}, "an axis that repeats stays");
  require(repeated.operands[1].stride[0] == 0 && repeated.operands[1].stride[1] == 20,
          "its stride");
  repeated.merge_to_rows();
  require((repeated.extent == std::vector<Size>{2} && repeated.n == 60), "rows along it");

  // Negative strides are walked as one too; rows with gaps are not one row.
  All gaps{5, {2, 3}, {}};
  gaps.add({-72, -24}, 4);
  gaps.merge();
  require(gaps.extent == std::vector<Size>{6}, "negative strides");
  gaps.merge_to_rows();
  require((gaps.extent == std::vector<Size>{6} && gaps.n == 5), "rows with gaps");

  // An operand that is not given hinders nothing; one with shorter rows does.
  All absent{5, {3}, {}};
  absent.add({20}, 4);
  absent.add({0}, 4, false);
  All shorter = absent;
  absent.merge_to_rows();
  require(absent.extent.empty() && absent.n == 15, "an operand that is not given");
  shorter.operands[1] = {memory, 2, 4, {20}};
  shorter.merge_to_rows();
  require(shorter.n == 5, "a shorter one");
}

template <class Size, class Stride>
void check_strides() {
  const auto taken = [](std::vector<std::ptrdiff_t> shape, std::vector<std::ptrdiff_t> strides,
                        Size length) {
    Operand<Size, Stride> operand{nullptr, length, 4, {}};
    const ArrayView array{memory,       kFloat32,       static_cast<int>(shape.size()),
                          shape.data(), strides.data(), false};
    take_strides(operand, array, 2);
    require(operand.data == memory, "data");
    return operand;
  };
  const auto whole = taken({2, 3, 5}, {600, 100, 8}, 5);
  require(whole.stride[0] == 600 && whole.stride[1] == 100 && whole.element_stride == 8,
          "whole arrays");
  const auto one_row = taken({5}, {8}, 5);
  require(one_row.stride[0] == 0 && one_row.stride[1] == 0 && one_row.element_stride == 8,
          "axes that are lacking");
  const auto column = taken({1, 3, 1}, {600, 100, 8}, 5);
  require(column.stride[0] == 0 && column.stride[1] == 100 && column.element_stride == 0,
          "axes of length 1 repeat");
  require(taken({}, {}, 5).element_stride == 0, "a number repeats");
  require(taken({}, {}, 1).element_stride == 4, "a row of one element");
}

}  // namespace

int main() {
  check_axes<std::size_t, std::ptrdiff_t>();
  check_axes<std::int64_t, std::int64_t>();
  check_strides<std::size_t, std::ptrdiff_t>();
  check_strides<std::int64_t, std::int64_t>();
}
