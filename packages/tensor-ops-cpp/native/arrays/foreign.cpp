#include "arrays/foreign.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

#include "declaration/errors.h"

namespace tensor_ops {
namespace {

Module graph("torch.autograd.graph");
Name increment_version("increment_version");

// Views of no memory point here.
char no_memory;

// Sets all but the dtype, which is known.
void set_view(const dlpack::DLTensor& tensor, Array& array) {
  array.data = tensor.data ? static_cast<char*>(tensor.data) + tensor.byte_offset : &no_memory;
  array.set_axes(tensor.ndim, tensor.shape, tensor.strides,
                 static_cast<std::int64_t>(array.item_size()));
}

// A new tensor in one block of memory, which takes a fraction of the time of the library's
// allocator and of what that makes of it. Null where there is no memory.
dlpack::OwnedTensor small_tensor(const Array& like, std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;  // as PyTorch's memory has it
  const auto dims = static_cast<std::size_t>(like.dims);
  const std::size_t head =
      sizeof(dlpack::ManagedTensorVersioned) + 2 * dims * sizeof(std::int64_t) + kAlignment;
  void* block = std::malloc(head + bytes);
  if (!block) return nullptr;
  auto* managed = new (block) dlpack::ManagedTensorVersioned;
  auto* shape = new (managed + 1) std::int64_t[2 * dims];
  std::int64_t step = 1;
  for (int d = like.dims - 1; d >= 0; --d) {
    shape[d] = like.shape[d];
    shape[like.dims + d] = step;
    step *= std::max<std::int64_t>(shape[d], 1);  // of empty tensors, as PyTorch has it
  }
  const auto end = reinterpret_cast<std::uintptr_t>(block) + head;
  auto* data = reinterpret_cast<void*>(end / kAlignment * kAlignment);
  const auto free_block = [](dlpack::ManagedTensorVersioned* tensor) { std::free(tensor); };
  *managed = {dlpack::kVersion, nullptr, free_block, 0, {}};
  managed->tensor = {data,  {dlpack::kCPU, 0}, like.dims, dlpack::data_type(like.dtype),
                     shape, shape + like.dims, 0};
  return dlpack::OwnedTensor(managed);
}

dlpack::OwnedTensor allocate(const char* op, const Array& like, const dlpack::ExchangeAPI& api) {
  constexpr std::size_t kMostInOneBlock = std::size_t{64} << 10;
  const std::size_t bytes = like.size() * like.item_size();
  if (bytes <= kMostInOneBlock)
    if (dlpack::OwnedTensor tensor = small_tensor(like, bytes)) return tensor;
  return dlpack::allocate(op, api, {dlpack::kCPU, 0}, like.dtype, like.dims, like.shape);
}

}  // namespace

void view_foreign(const char* op, const char* name, const dlpack::ExchangeAPI& api, Array& array) {
  const dlpack::DLTensor tensor = tensor_of(op, name, api, array.object);
  if (!is_in_host_memory(tensor))
    throw ValueError(text(op, ": ", name, " is not in host memory, where tensor_ops_cpp computes; ",
                          array.is_output ? "give an array that is" : "move it there",
                          ", or call tensor_ops.", op, ", which finds a backend for its device"));
  array.dtype = dtype_in_memory(op, name, array.object, array.is_output, tensor);
  if (!fits_into_memory(tensor.ndim, tensor.shape, static_cast<std::int64_t>(array.item_size())))
    throw ValueError(text(op, ": ", name, " cannot be seen as an array: array is too big: ",
                          shape_text(tensor.ndim, tensor.shape)));
  set_view(tensor, array);
}

bool is_read_only_foreign(PyObject* object, const dlpack::ExchangeAPI& api) {
  dlpack::ManagedTensorVersioned* managed = nullptr;
  if (api.managed_from_object(object, &managed) != 0) throw PythonError();
  return dlpack::OwnedTensor(managed)->flags & dlpack::kReadOnly;
}

void note_written(PyObject* object) {
  PyObject* module = graph.get();
  const Owned done = module ? call_method(module, increment_version.get(), object) : Owned();
  // Not every array has a version: those of other libraries, and tensors made for inference.
  if (!done) PyErr_Clear();
}

ForeignResult::ForeignResult(const char* op, const Array& like, const dlpack::ExchangeAPI& api)
    : api_(&api), tensor_(allocate(op, like, api)) {}

void ForeignResult::view(Array& array) const { set_view(tensor_->tensor, array); }

Owned ForeignResult::release() { return dlpack::to_object(*api_, std::move(tensor_)); }

}  // namespace tensor_ops
