#include "python/overlap.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "launch/errors.h"
#include "python/checks.h"

namespace tensor_ops {
namespace {

// The addresses [first, last) that an array's elements lie in.
struct Range {
  std::uintptr_t first, last;
};

Range range_of(PyArrayObject* array) {
  const auto start = reinterpret_cast<std::uintptr_t>(PyArray_DATA(array));
  if (PyArray_IS_C_CONTIGUOUS(array))
    return {start, start + static_cast<std::uintptr_t>(size_of(array) * PyArray_ITEMSIZE(array))};
  if (size_of(array) == 0) return {start, start};
  Range range{start, start + static_cast<std::uintptr_t>(PyArray_ITEMSIZE(array))};
  for (int d = 0; d < PyArray_NDIM(array); ++d) {
    const npy_intp reach = (PyArray_DIM(array, d) - 1) * PyArray_STRIDE(array, d);
    (reach < 0 ? range.first : range.last) += static_cast<std::uintptr_t>(reach);
  }
  return range;
}

bool meet(Range a, Range b) { return a.first < b.last && b.first < a.last; }

bool is_same_view(PyArrayObject* a, PyArrayObject* b) {
  if (PyArray_DATA(a) != PyArray_DATA(b) || !PyArray_SAMESHAPE(a, b)) return false;
  if (PyArray_ITEMSIZE(a) != PyArray_ITEMSIZE(b)) return false;
  for (int d = 0; d < PyArray_NDIM(a); ++d)
    if (PyArray_DIM(a, d) > 1 && PyArray_STRIDE(a, d) != PyArray_STRIDE(b, d)) return false;
  return true;
}

// The array itself, where its class might answer NumPy's functions otherwise.
Owned plain_view(PyArrayObject* array) {
  Owned view(PyArray_View(array, nullptr, &PyArray_Type));
  if (!view) throw PythonError();
  return view;
}

bool is_too_hard_error_set() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  const Owned exceptions(PyImport_ImportModule("numpy.exceptions"));
  const Owned too_hard(exceptions ? PyObject_GetAttrString(exceptions.get(), "TooHardError")
                                  : nullptr);
  PyErr_Restore(type, value, traceback);
  return too_hard && PyErr_ExceptionMatches(too_hard.get());
}

// Exact, and so possibly slow: only for arrays whose address ranges meet. Strides for which the
// search would take seconds or years count as sharing.
bool share_memory(PyArrayObject* a, PyArrayObject* b) {
  constexpr int kMostWork = 1'000'000;
  const Owned numpy(PyImport_ImportModule("numpy"));
  if (!numpy) throw PythonError();
  const Owned shared(PyObject_CallMethod(numpy.get(), "shares_memory", "OOi", plain_view(a).get(),
                                         plain_view(b).get(), kMostWork));
  if (shared) return shared.get() == Py_True;
  if (!is_too_hard_error_set()) throw PythonError();
  PyErr_Clear();
  return true;
}

bool overlap(PyArrayObject* a, Range range_of_a, PyArrayObject* b) {
  return meet(range_of_a, range_of(b)) && share_memory(a, b);
}

// Every axis, in order of stride, must step over all that the shorter strides reach. Layouts that
// fail this without two elements sharing memory exist, but nobody makes them to write into.
bool may_overlap_itself(PyArrayObject* array) {
  if (PyArray_IS_C_CONTIGUOUS(array) || size_of(array) == 0) return false;
  int axis[NPY_MAXDIMS], axes = 0;
  for (int d = 0; d < PyArray_NDIM(array); ++d)
    if (PyArray_DIM(array, d) > 1) axis[axes++] = d;
  const auto step = [array](int d) { return std::abs(PyArray_STRIDE(array, d)); };
  std::sort(axis, axis + axes, [&](int a, int b) { return step(a) < step(b); });
  npy_intp reach = PyArray_ITEMSIZE(array);
  for (int i = 0; i < axes; ++i) {
    if (step(axis[i]) < reach) return true;
    reach += (PyArray_DIM(array, axis[i]) - 1) * step(axis[i]);
  }
  return false;
}

void check_against_inputs(const Op& op, const CheckedCall& call, std::size_t i) {
  PyArrayObject* out = call.out[i];
  const Range range = range_of(out);
  for (int k = 0; k < call.arrays; ++k) {
    PyArrayObject* input = call.array[k];
    if (!input) continue;
    const bool may_be_input = call.kind[k] == Kind::kRows;
    if (may_be_input && is_same_view(out, input)) continue;
    if (overlap(out, range, input))
      throw ValueError(text(op.name, ": ", output_name(op, i), " overlaps ", call.name[k],
                            may_be_input ? " without being exactly the same view" : "",
                            "; give an array of its own memory"));
  }
}

}  // namespace

void check_overlap(const Op& op, const CheckedCall& call) {
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    if (may_overlap_itself(call.out[i]))
      throw ValueError(
          text(op.name, ": ", output_name(op, i),
               " overlaps itself (several elements share memory); give an array made by "
               "numpy.empty"));
    check_against_inputs(op, call, i);
  }
  if (op.outputs.size() == 2 && overlap(call.out[0], range_of(call.out[0]), call.out[1]))
    throw ValueError(text(op.name, ": out[0] and out[1] overlap; give two separate arrays"));
}

}  // namespace tensor_ops
