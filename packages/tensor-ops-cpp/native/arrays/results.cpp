// Large results are arrays that own their memory, like any other; the memory is the pool's, and
// goes back to it by way of the handler that NumPy keeps with every array (NEP 49).
#include "arrays/results.h"

#include <cstring>

#include "declaration/errors.h"
#include "memory/pages.h"
#include "memory/result_pool.h"

namespace tensor_ops {
namespace {

void* handle_malloc(void*, std::size_t bytes) { return allocate_block(bytes); }

void* handle_calloc(void*, std::size_t count, std::size_t each) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, each, &bytes)) return nullptr;
  void* block = allocate_block(bytes);
  if (block && !is_fresh_block(block)) std::memset(block, 0, bytes);
  return block;
}

void* handle_realloc(void*, void* block, std::size_t bytes) {
  return reallocate_block(block, bytes);
}

void handle_free(void*, void* block, std::size_t) { free_block(block); }

PyDataMem_Handler handler = {
    "tensor_ops_cpp", 1, {nullptr, handle_malloc, handle_calloc, handle_realloc, handle_free}};

// Never released: arrays hold it, and may be freed after the module is gone.
PyObject* handler_capsule = nullptr;

Owned new_array(PyArrayObject* like, void* data) {
  PyArray_Descr* descr = PyArray_DESCR(like);
  Py_INCREF(reinterpret_cast<PyObject*>(descr));
  return Owned(PyArray_NewFromDescr(&PyArray_Type, descr, PyArray_NDIM(like), PyArray_DIMS(like),
                                    nullptr, data, data ? NPY_ARRAY_CARRAY : 0, nullptr));
}

// Whoever gives NumPy another allocator wants it for these arrays too.
bool numpy_allocates_as_always() {
  const Owned current(PyDataMem_GetHandler());
  if (!current) throw PythonError();
  return current.get() == PyDataMem_DefaultHandler;
}

// Does what NumPy does with memory that it has allocated itself. To let it do so,
// PyDataMem_SetHandler() would have to be called twice for each array, which costs four times as
// much as all of this.
void give_memory(PyArrayObject* array, void* memory) {
  reinterpret_cast<PyArrayObject_fields*>(array)->mem_handler = Py_NewRef(handler_capsule);
  PyArray_ENABLEFLAGS(array, NPY_ARRAY_OWNDATA);
  constexpr unsigned kNumPyDomain = 389047;  // numpy.lib.tracemalloc_domain
  trace_memory(kNumPyDomain, memory, static_cast<std::size_t>(PyArray_NBYTES(array)));
}

// Raises NumPy's own error where there is no memory, which what the pool keeps may be.
Owned new_numpy_array(PyArrayObject* like) {
  Owned array = new_array(like, nullptr);
  if (!array && PyErr_ExceptionMatches(PyExc_MemoryError) && trim_pool() > 0) {
    PyErr_Clear();
    array = new_array(like, nullptr);
  }
  if (!array) throw PythonError();
  return array;
}

// Null where the pool has no memory for it.
Owned new_pooled_array(PyArrayObject* like, std::size_t bytes) {
  void* memory = allocate_block(bytes);
  if (!memory) return {};
  Owned array = new_array(like, memory);
  if (!array) {
    free_block(memory);
    throw PythonError();
  }
  give_memory(array.array(), memory);
  return array;
}

}  // namespace

void prepare_results() {
  if (handler_capsule) return;
  handler_capsule = PyCapsule_New(&handler, "mem_handler", nullptr);
  if (!handler_capsule) throw PythonError();
}

void Result::prepare(const Declaration& op, CheckedCall& call, std::size_t i) {
  Array& out = call.out[i];
  const dlpack::ExchangeAPI* exchange = call.reader.exchange();
  if (out.is_given()) {
    (exchange ? given_ : array_) = Owned::borrow(out.object);
    return;
  }
  const Array& like = call.array[op.outputs[i].like];
  allocate(op.name, like, exchange);
  out.dtype = like.dtype;
  if (exchange) return foreign_.view(out);
  view_numpy(array_.array(), out);
}

void Result::allocate(const char* op, const Array& like, const dlpack::ExchangeAPI* exchange) {
  if (exchange) {
    foreign_ = ForeignResult(op, like, *exchange);
    return;
  }
  const std::size_t bytes = like.size() * like.item_size();
  if (bytes >= kLeastKept && bytes <= pool_limit() && numpy_allocates_as_always())
    array_ = new_pooled_array(like.numpy, bytes);
  if (!array_) array_ = new_numpy_array(like.numpy);
}

void Result::populate() const {
  constexpr std::size_t kFewHugePages = std::size_t{4} << 20;
  if (foreign_) return;
  const auto bytes = static_cast<std::size_t>(PyArray_NBYTES(array_.array()));
  if (bytes < kLeastKept || bytes >= kFewHugePages) return;
  void* memory = PyArray_DATA(array_.array());
  if (PyArray_HANDLER(array_.array()) == handler_capsule && is_fresh_block(memory))
    populate_pages(memory, bytes);
}

Owned Result::release() {
  if (foreign_) return foreign_.release();
  if (!given_) return std::move(array_);
  note_written(given_.get());
  return std::move(given_);
}

}  // namespace tensor_ops
