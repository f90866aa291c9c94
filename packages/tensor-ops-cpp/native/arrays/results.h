// The arrays that a call writes its results into.
#pragma once

#include "arrays/foreign.h"
#include "binding/ops/checks.h"

namespace tensor_ops {

// To be called once, before the first result. Throws PythonError.
void prepare_results();

class Result {
 public:
  // The i-th of a call: what the caller gave for it, or a new array of x's kind and shape and the
  // output's dtype, not initialised, which the call is given a view of. Throws MemoryError, Error
  // or PythonError.
  void prepare(const Declaration& op, CheckedCall& call, std::size_t i);

  // Makes a new array's memory resident where that pays for a single thread that is about to write
  // it: between the sizes that NumPy allocates and those whose huge pages are few. Needs no GIL.
  void populate() const;

  // The object that the caller gets, once. Throws PythonError.
  Owned release();

 private:
  void allocate(const char* op, const Array& like, const dlpack::ExchangeAPI* exchange);

  Owned array_;            // NumPy's
  Owned given_;            // of another library, the caller's
  ForeignResult foreign_;  // of another library, new
};

}  // namespace tensor_ops
