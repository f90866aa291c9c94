#include "python/contiguous_rows.h"

#include <cstdint>

namespace tensor_ops {
namespace {

std::size_t item_size(PyArrayObject* array) {
  return static_cast<std::size_t>(PyArray_ITEMSIZE(array));
}

bool is_contiguous_and_aligned(PyArrayObject* array) {
  return PyArray_IS_C_CONTIGUOUS(array) &&
         reinterpret_cast<std::uintptr_t>(PyArray_DATA(array)) % item_size(array) == 0;
}

// Bytes from one row of an argument to the next; -1 where they are not the same for all rows.
std::ptrdiff_t row_stride(Kind kind, PyArrayObject* array, const ContiguousRows& rows) {
  const std::size_t item = item_size(array);
  if (kind == Kind::kRows) return static_cast<std::ptrdiff_t>(rows.n * item);
  if (kind != Kind::kHalfRows) return 0;
  const int dims = PyArray_NDIM(array);
  if (dims == 0 || static_cast<std::size_t>(PyArray_DIM(array, dims - 1)) != rows.n / 2) return -1;
  std::size_t count = 1;
  for (int d = 0; d < dims - 1; ++d) count *= static_cast<std::size_t>(PyArray_DIM(array, d));
  if (count == rows.rows) return static_cast<std::ptrdiff_t>(rows.n / 2 * item);
  return count == 1 ? 0 : -1;
}

}  // namespace

bool as_contiguous_rows(const Op& op, const CheckedCall& call, const Result* outputs,
                        std::size_t elements, ContiguousRows& rows) {
  PyArrayObject* x = call.array[0].view;
  rows.n = op.walk == Walk::kElements
               ? elements
               : static_cast<std::size_t>(PyArray_DIM(x, PyArray_NDIM(x) - 1));
  rows.rows = elements / rows.n;
  int k = 0;
  for (; k < call.arrays; ++k) {
    rows.data[k] = nullptr;
    rows.stride[k] = 0;
    if (!call.array[k].object) continue;
    PyArrayObject* array = call.array[k].view;
    if (!is_contiguous_and_aligned(array)) return false;
    rows.data[k] = PyArray_BYTES(array);
    rows.stride[k] = row_stride(call.kind[k], array, rows);
    if (rows.stride[k] < 0) return false;
  }
  for (std::size_t i = 0; i < op.outputs.size(); ++i, ++k) {
    PyArrayObject* output = outputs[i].array();
    if (!is_contiguous_and_aligned(output)) return false;
    rows.data[k] = PyArray_BYTES(output);
    rows.stride[k] = row_stride(Kind::kRows, output, rows);
  }
  return true;
}

}  // namespace tensor_ops
