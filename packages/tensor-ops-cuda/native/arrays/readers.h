// Finding out the source of an array, and reading those of each source. All throw TypeError,
// ValueError or PythonError, with the op's and the argument's name.
#pragma once

#include "arrays/array.h"

namespace tensor_ops {

// The facts of a type, known from its first instance on. An instance's own attributes do not count.
struct TypeFacts {
  PyTypeObject* type;
  Source source;
  bool is_array = true;
  const dlpack::ExchangeAPI* api = nullptr;
  bool may_require_grad = false;  // has the attributes of a torch tensor
  std::string package;            // "cupy"
};

// By type, remembered; any thread may ask. Throws PythonError.
TypeFacts facts_of(PyObject* object);

[[noreturn]] void refuse_no_array(const char* op, const char* name, const Array& array);
// Tensors whose gradients are recorded, or of signs that are not in memory. Returns whether the
// tensor requires grad where none is recorded.
bool refuse_grad(const char* op, const char* name, const Array& array, const std::string& package);

void read_numpy(const char* op, const char* name, Array& array);

dlpack::Device protocol_device(const char* op, const char* name, PyObject* object);
// Asks for the array with a stream that is to wait for it.
Lease read_capsule(const char* op, const char* name, PyObject* object, cudaStream_t stream,
                   View& view);

// The current stream of an imported library, on a device that is current.
struct LibraryStream {
  bool is_known = false;
  cudaStream_t stream = nullptr;
  Owned owner;
};
LibraryStream current_stream_of(const std::string& package, int device);

// With its device and, where the array says so, its stream.
void read_cuda_interface(const char* op, const char* name, Array& array);

}  // namespace tensor_ops
