// The arrays that a call allocates for its results.
#pragma once

#include "launch/numpy.h"

namespace tensor_ops {

// To be called once, before the first result. Throws PythonError.
void prepare_results();

// C-contiguous, of x's shape and dtype, which take so many bytes; not initialised. Throws
// PythonError.
Owned new_result(PyArrayObject* x, std::size_t bytes);

// Makes a new result's memory resident where that pays for a single thread that is about to write
// it: between the sizes that NumPy allocates and those whose huge pages are few. Needs no GIL.
void populate_result(PyArrayObject* result, std::size_t bytes);

}  // namespace tensor_ops
