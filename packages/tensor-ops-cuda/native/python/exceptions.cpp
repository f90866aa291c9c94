#include "python/exceptions.h"

#include <new>

#include "arrays/python.h"
#include "launch/cuda.h"
#include "launch/errors.h"

namespace tensor_ops {

void set_python_error() {
  try {
    throw;
  } catch (const PythonError&) {
  } catch (const TypeError& error) {
    PyErr_SetString(PyExc_TypeError, error.what());
  } catch (const ValueError& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const MemoryError& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  } catch (const CudaError& error) {
    const bool is_memory = error.code() == cudaErrorMemoryAllocation;
    PyErr_SetString(
        is_memory ? PyExc_MemoryError : PyExc_RuntimeError,
        text(error.what(), is_memory ? "; free arrays, or use smaller ones" : "").c_str());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

}  // namespace tensor_ops
