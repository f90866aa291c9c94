#include "binding/decode/tensors.h"

#include <string>

#include "binding/python/host_arrays.h"
#include "declaration/errors.h"

namespace nb = nanobind;

namespace tensor_ops {
namespace {

constexpr char kTakesTensors[] = "compile_program";

// Null where DLPack's C exchange API gives no view.
Owned view_by_exchange(const char* name, PyObject* object) {
  const dlpack::ExchangeAPI* api = exchange_api(Py_TYPE(object));
  if (!api) return {};
  require_all_in_memory(kTakesTensors, name, object, false, false);
  try {
    const dlpack::DLTensor tensor = tensor_of(kTakesTensors, name, *api, object);
    if (!is_in_host_memory(tensor))
      throw ValueError(
          text(kTakesTensors, ": tensor '", name, "' is not in host memory; move it there"));
    return view_of_host_array(kTakesTensors, name, object, false, tensor);
  } catch (const TypeError&) {
    return {};
  }
}

// A view by DLPack. bfloat16, which NumPy lacks, becomes uint16. NumPy itself views what has no
// floats.
Owned view_by_dlpack(const std::string& name, PyObject* object) {
  Owned view = view_by_exchange(name.c_str(), object);
  if (view) return view;
  const nb::object from_dlpack = nb::module_::import_("numpy").attr("from_dlpack");
  view = Owned(PyObject_CallFunctionObjArgs(from_dlpack.ptr(), object, nullptr));
  if (!view)
    throw TypeError(text(kTakesTensors, ": tensor '", name,
                         "' is not an array in host memory: ", take_error_text()));
  return view;
}

// Whether an array has the shape of a tensor and its dtype. bfloat16, which NumPy lacks, is uint16
// or a dtype that a package has added.
bool holds_numbers(const decode::Tensor& tensor, PyArrayObject* array) {
  const std::string name = tensor.type->name;
  const int type = PyArray_TYPE(array);
  const bool is_dtype = name == "f32"    ? type == NPY_FLOAT32
                        : name == "f16"  ? type == NPY_FLOAT16
                        : name == "bf16" ? type == NPY_UINT16 || type >= NPY_USERDEF
                                         : false;
  const npy_intp* const shape = PyArray_DIMS(array);
  const std::vector<std::size_t> given(shape, shape + PyArray_NDIM(array));
  return is_dtype && PyArray_ISNOTSWAPPED(array) && given == tensor.shape();
}

// A tensor's memory as a C-contiguous array of NumPy: its bytes or its numbers.
Owned as_numpy(const decode::Tensor& tensor, PyObject* object) {
  const std::string& name = tensor.name;
  Owned view = PyArray_Check(object) ? Owned::borrow(object) : view_by_dlpack(name, object);
  if (!PyArray_IS_C_CONTIGUOUS(view.array()))
    throw ValueError(text(kTakesTensors, ": tensor '", name,
                          "' is not C-contiguous; pass numpy.ascontiguousarray() of it"));
  const bool is_bytes = PyArray_TYPE(view.array()) == NPY_UINT8;
  if (!is_bytes && !holds_numbers(tensor, view.array())) {
    const std::vector<std::size_t> expected = tensor.shape();
    const nb::object shape = nb::handle(view.get()).attr("shape");
    throw ValueError(text(kTakesTensors, ": tensor '", name, "' must be ", tensor.type->name,
                          " of shape ", shape_text(tensor.dimensions, expected.data()),
                          " or its bytes as uint8, got ", dtype_attribute_text(object),
                          " of shape ", repr_text(shape.ptr())));
  }
  return view;
}

// Whether the memory of an array is a file that Python's mmap has mapped for reading alone.
bool is_mapped_file(PyArrayObject* array) {
  PyObject* owner = reinterpret_cast<PyObject*>(array);
  while (owner && PyArray_Check(owner))
    owner = PyArray_BASE(reinterpret_cast<PyArrayObject*>(owner));
  if (!owner || !PyMemoryView_Check(owner)) return false;
  const nb::handle view(owner);
  return nb::cast<bool>(view.attr("readonly")) &&
         view.attr("obj").type().is(nb::module_::import_("mmap").attr("mmap"));
}

}  // namespace

GivenTensors given_tensors(const decode::Program& program, const nb::object& tensors,
                           const std::vector<bool>& wanted) {
  const std::size_t count = program.tensors.size();
  GivenTensors given{std::vector<decode::TensorBytes>(count), std::vector<nb::object>(count),
                     std::vector<nb::object>(count)};
  for (std::size_t i = 0; i < count; ++i) {
    const nb::object name = nb::cast(program.tensors[i].name);
    if (!wanted[i] || !nb::cast<bool>(tensors.attr("__contains__")(name))) continue;
    given.objects[i] = tensors[name];
    Owned view = as_numpy(program.tensors[i], given.objects[i].ptr());
    given.bytes[i] = bytes_of(view.array());
    given.views[i] = object_of(std::move(view));
  }
  return given;
}

decode::TensorBytes bytes_of(PyArrayObject* array) {
  return {reinterpret_cast<const unsigned char*>(PyArray_DATA(array)),
          static_cast<std::size_t>(PyArray_NBYTES(array)), is_mapped_file(array)};
}

}  // namespace tensor_ops
