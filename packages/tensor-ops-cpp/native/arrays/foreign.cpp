#include "arrays/foreign.h"

#include <utility>

#include "declaration/errors.h"

namespace tensor_ops {
namespace {

Name graph("torch.autograd.graph"), increment_version("increment_version");

}  // namespace

Owned view_of_foreign(const char* op, const char* name, const dlpack::ExchangeAPI& api,
                      Array& array) {
  const dlpack::DLTensor tensor = tensor_of(op, name, api, array.object);
  if (!is_in_host_memory(tensor))
    throw ValueError(text(op, ": ", name, " is not in host memory, where tensor_ops_cpp computes; ",
                          array.is_output ? "give an array that is" : "move it there",
                          ", or call tensor_ops.", op, ", which finds a backend for its device"));
  return view_of_host_array(op, name, array.object, array.is_output, tensor, array.dtype);
}

bool is_read_only_foreign(PyObject* object, const dlpack::ExchangeAPI& api) {
  dlpack::ManagedTensorVersioned* managed = nullptr;
  if (api.managed_from_object(object, &managed) != 0) throw PythonError();
  return dlpack::OwnedTensor(managed)->flags & dlpack::kReadOnly;
}

void note_written(PyObject* object) {
  const Owned module(PyImport_GetModule(graph.get()));
  const Owned done(module ? PyObject_CallMethodOneArg(module.get(), increment_version.get(), object)
                          : nullptr);
  // Not every array has a version: those of other libraries, and tensors made for inference.
  if (!done) PyErr_Clear();
}

ForeignResult::ForeignResult(const char* op, const Array& like, const dlpack::ExchangeAPI& api)
    : api_(&api),
      tensor_(dlpack::allocate(op, api, {dlpack::kCPU, 0}, like.dtype, like.dims, like.shape)),
      view_(view_of_tensor(op, "the result", tensor_->tensor, like.dtype)) {}

Owned ForeignResult::release() { return dlpack::to_object(*api_, std::move(tensor_)); }

}  // namespace tensor_ops
