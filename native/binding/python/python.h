// Python's and NumPy's C API, the latter imported once, in binding/python/import_numpy.cpp.
//
// Wheels for CPython 3.12 and newer keep to its stable ABI (Py_LIMITED_API), all others are
// compiled with the whole API. The code is the same for both: it uses what both have, and asks this
// header for what the stable ABI lacks.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL tensor_ops_numpy_api
#ifndef TENSOR_OPS_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace tensor_ops {

// False if NumPy cannot be imported, with Python's exception set.
bool import_numpy();

// The name of an object's type, as CPython's messages have it: "int", "Tensor", "numpy.float32".
std::string type_name(PyTypeObject* type);
inline std::string type_name(PyObject* object) { return type_name(Py_TYPE(object)); }

// A strong reference.
class Owned {
 public:
  Owned() = default;
  explicit Owned(PyObject* stolen) : object_(stolen) {}
  Owned(Owned&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  // Most are empty at their end, where a call would cost more than the test.
  __attribute__((always_inline)) ~Owned() { Py_XDECREF(object_); }

  static Owned borrow(PyObject* object) { return Owned(Py_NewRef(object)); }

  PyObject* get() const { return object_; }
  PyArrayObject* array() const { return reinterpret_cast<PyArrayObject*>(object_); }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// A constant Python string, made at its first use and kept. Instances are static variables of a
// file, never of a function: without a GIL, a thread that waits for another one to initialise such
// a variable cannot be stopped for the garbage collector, which may have stopped that other thread.
class Name {
 public:
  constexpr explicit Name(const char* text) : text_(text) {}

  // Throws PythonError.
  PyObject* get() const;

 private:
  const char* text_;
  mutable std::atomic<PyObject*> interned_{nullptr};
};

// A module that other code may have imported. Instances are static variables of a file.
class Module {
 public:
  constexpr explicit Module(const char* name) : name_(name) {}

  // Borrowed; null where nobody has imported it. It is kept once it is found, since looking for it
  // takes time that small calls show. Throws PythonError.
  PyObject* get() const;

 private:
  Name name_;
  mutable std::atomic<PyObject*> found_{nullptr};
};

// Lets other threads run Python, and be stopped, while this one computes or waits.
class ReleasedGil {
 public:
  explicit ReleasedGil(bool is_released = true)
      : state_(is_released ? PyEval_SaveThread() : nullptr) {}
  ReleasedGil(const ReleasedGil&) = delete;
  ReleasedGil& operator=(const ReleasedGil&) = delete;
  // When the interpreter ends, CPython before 3.14 ends a daemon thread that asks for the GIL by
  // unwinding its stack. That must neither leave a destructor nor, without the GIL, drop our
  // references: the thread waits for the process to end instead, as it does in 3.14.
  ~ReleasedGil() {
    if (!state_) return;
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    }
  }

 private:
  PyThreadState* state_;
};

// The GIL, for a thread that has let go of it; the thread waits where it would be ended, as in
// ReleasedGil.
class AcquiredGil {
 public:
  AcquiredGil() {
    try {
      state_ = PyGILState_Ensure();
    } catch (...) {
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    }
  }
  AcquiredGil(const AcquiredGil&) = delete;
  AcquiredGil& operator=(const AcquiredGil&) = delete;
  ~AcquiredGil() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_;
};

template <class Function>
auto without_gil(Function function) {
  const ReleasedGil released;
  return function();
}

// object.name() and object.name(argument), as PyObject_CallMethodNoArgs() and
// PyObject_CallMethodOneArg() call them.
inline Owned call_method(PyObject* object, PyObject* name) {
  return Owned(
      PyObject_VectorcallMethod(name, &object, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}
inline Owned call_method(PyObject* object, PyObject* name, PyObject* argument) {
  PyObject* given[] = {object, argument};
  return Owned(PyObject_VectorcallMethod(name, given, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}

// Tells tracemalloc of memory, as PyTraceMalloc_Track() does.
void trace_memory(unsigned domain, const void* memory, std::size_t bytes);

// The first line of the Python exception that is set, which is then cleared.
std::string take_error_text();

// str(object), or a text that says that it fails.
std::string str_text(PyObject* object);

// repr(object), or what it is where that fails.
std::string repr_text(PyObject* object);

// str(object.dtype), which every array library has.
std::string dtype_attribute_text(PyObject* object);

}  // namespace tensor_ops
