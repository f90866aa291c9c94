/* The C interface of the native backends of tensor-ops.
 *
 * Each backend is a shared library that exports one function, which returns a table of all that it
 * can do: tensor_ops_cpp_backend() of libtensor_ops_cpp, tensor_ops_cuda_backend() of
 * libtensor_ops_cuda. Nothing in a table ever changes, and it is never freed.
 *
 * - No C++ exception leaves a library. A function that can fail returns a tensor_ops_status and, if
 *   it is not TENSOR_OPS_OK, writes a message: what was given, what was expected and what to do.
 * - All arguments are checked before any work: a call that fails has written nothing, unless its
 *   status is TENSOR_OPS_RUNTIME_ERROR.
 * - Every function may be called from any thread, at the same time as any other.
 * - Text is UTF-8 and ends with a zero.
 * - No thread is started and no device is touched before the first call that needs it. A library
 *   that has started threads stays loaded when dlclose() is called.
 *
 * Version 1 of this interface grows only at the end of its structs. The caller says how large its
 * own are in their member `size`, and finds in the table's how much of it there is.
 */
#ifndef TENSOR_OPS_ABI_H
#define TENSOR_OPS_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TENSOR_OPS_ABI_VERSION 1u

/* The outcome of a call. The names are those of Python's exceptions. */
typedef int32_t tensor_ops_status;
enum {
  TENSOR_OPS_OK = 0,
  TENSOR_OPS_TYPE_ERROR = 1,   /* a dtype, a missing argument, or host beside device arrays */
  TENSOR_OPS_VALUE_ERROR = 2,  /* a shape, a number, a device, an overlap or a null pointer */
  TENSOR_OPS_MEMORY_ERROR = 3, /* there is not enough memory */
  TENSOR_OPS_UNAVAILABLE = 4,  /* the backend cannot run here; unavailable_reason() says why */
  TENSOR_OPS_RUNTIME_ERROR = 5 /* anything else, such as an error of a driver */
};

/* A function that fails writes the reason here. Every function takes a null pointer instead. */
typedef struct tensor_ops_error {
  char message[1024]; /* cut off if it is longer */
} tensor_ops_error;

/* The dtypes of elements. TENSOR_OPS_NO_ARRAY stands for an optional array that is not given. */
typedef int32_t tensor_ops_dtype;
enum {
  TENSOR_OPS_NO_ARRAY = -1,
  TENSOR_OPS_FLOAT32 = 0,
  TENSOR_OPS_FLOAT16 = 1,
  TENSOR_OPS_BFLOAT16 = 2,
  TENSOR_OPS_FLOAT64 = 3
};

/* The kinds of memory, with the numbers of DLPack. */
typedef int32_t tensor_ops_device_kind;
enum { TENSOR_OPS_CPU = 1, TENSOR_OPS_CUDA = 2 };

/* An array in the caller's memory. Axes of length 1 may have any stride, as may all axes of an
 * array without elements; strides may be negative, and 0 where an input repeats. */
typedef struct tensor_ops_array {
  void* data; /* the element at index 0 of every axis; in host memory it need not be aligned */
  tensor_ops_dtype dtype;
  int32_t dims;           /* 0 to 64 */
  const int64_t* shape;   /* elements along each axis; may be null where dims is 0 */
  const int64_t* strides; /* bytes from one element to the next; null for C-contiguous */
  tensor_ops_device_kind device_kind;
  int32_t device_index; /* 0 for the CPU */
} tensor_ops_array;

/* The parameters of an op, in the order of its formula. */
typedef int32_t tensor_ops_parameter_kind;
enum {
  TENSOR_OPS_ROWS = 0,         /* an array of x's shape; the first parameter, x itself, is one */
  TENSOR_OPS_ROW = 1,          /* an array of shape (n,), n being the length of x's last axis */
  TENSOR_OPS_OPTIONAL_ROW = 2, /* the same, or none */
  TENSOR_OPS_HALF_ROWS = 3,    /* an array that broadcasts to x's shape with n/2 in place of n */
  TENSOR_OPS_SCALAR = 4,       /* a finite real number */
  TENSOR_OPS_CHOICE = 5,       /* one of two words */
  TENSOR_OPS_FLAG = 6          /* "False" or "True" */
};

typedef struct tensor_ops_parameter {
  const char* name;
  const char* description;
  tensor_ops_parameter_kind kind;
  double default_value;   /* of a scalar */
  const char* choices[2]; /* of a choice or a flag; the first is the default. Else null. */
} tensor_ops_parameter;

typedef struct tensor_ops_op {
  const char* name;
  const char* summary;
  const char* formula;
  const tensor_ops_parameter* parameters;
  int32_t parameter_count;
  int32_t input_count;  /* parameters that are arrays */
  int32_t scalar_count; /* parameters that are scalars */
  const char* const* output_names;
  int32_t output_count;
} tensor_ops_op;

/* The arguments of an op. An output has the shape and dtype of x, except that that of h in
 * add_rms_norm has the residual's dtype. It may be exactly the array that an input of x's shape is,
 * and must not overlap an input in any other way. */
typedef struct tensor_ops_call {
  size_t size;                     /* sizeof(tensor_ops_call) */
  const tensor_ops_array* inputs;  /* in the order of the parameters */
  const tensor_ops_array* outputs; /* in the order of output_names */
  const double* scalars;           /* in the order of the parameters */
  int32_t input_count;             /* must be the op's */
  int32_t output_count;            /* must be the op's */
  int32_t scalar_count;            /* the op's or fewer: the others have their default values */
  int32_t choice;                  /* 0 or 1: an index into `choices` of the choice or flag */
  int32_t num_threads;             /* 0: as many as pay; of no meaning on a GPU */
  /* The CUDA stream that device arrays are used on; null: the default one. The call returns before
   * they are written. Host arrays have been written when it returns, and use no stream. */
  void* stream;
} tensor_ops_call;

typedef struct tensor_ops_device {
  size_t size; /* sizeof(tensor_ops_device), written by the caller */
  tensor_ops_device_kind kind;
  int32_t index;
  char name[256];
  int32_t compute_capability; /* 90 for 9.0; 0 where it has no meaning */
  int32_t compute_units;      /* multiprocessors, or processors that may be used */
  int64_t memory;             /* bytes; 0 if unknown */
  int64_t shared_memory;      /* bytes that a block may have; 0 where it has no meaning */
} tensor_ops_device;

typedef struct tensor_ops_decode tensor_ops_decode; /* declared in tensor_ops/decode.h */

typedef struct tensor_ops_backend {
  size_t size;          /* bytes of this table */
  uint32_t abi_version; /* TENSOR_OPS_ABI_VERSION */
  const char* name;     /* "cpp" or "cuda" */
  const char* display_name;
  const char* version; /* of the library, such as "0.1.0" */
  /* The options that were compiled, as words "key=value" with spaces between them, such as
   * "levels=x86-64-v2,x86-64-v3 decode=on". */
  const char* configuration;
  /* Null where the backend can be used, else why it cannot. */
  const char* (*unavailable_reason)(void);

  /* 0 where the backend is unavailable. */
  int32_t (*device_count)(void);
  tensor_ops_status (*device)(int32_t index, tensor_ops_device* device, tensor_ops_error* error);

  const tensor_ops_op* const* ops; /* sorted by name */
  int32_t op_count;
  tensor_ops_status (*call)(const tensor_ops_op* op, const tensor_ops_call* call,
                            tensor_ops_error* error);

  /* Threads that a call may use, and a new limit from 1; of no meaning on a GPU. */
  int32_t (*num_threads)(void);
  tensor_ops_status (*set_num_threads)(int32_t count, tensor_ops_error* error);

  const tensor_ops_decode* decode; /* null where the backend runs no decode programs */
} tensor_ops_backend;

/* The type of the functions below. Where the library does not have this version of the interface,
 * *backend becomes null and the message says what it has. */
typedef tensor_ops_status tensor_ops_get_backend(uint32_t abi_version,
                                                 const tensor_ops_backend** backend,
                                                 tensor_ops_error* error);

#if !defined(_WIN32)
#define TENSOR_OPS_EXPORTED __attribute__((visibility("default")))
#elif defined(TENSOR_OPS_BUILDS_LIBRARY)
#define TENSOR_OPS_EXPORTED __declspec(dllexport)
#else
#define TENSOR_OPS_EXPORTED __declspec(dllimport)
#endif

/* The functions that libtensor_ops_cpp and libtensor_ops_cuda export, for programs that are linked
 * with them. */
TENSOR_OPS_EXPORTED tensor_ops_get_backend tensor_ops_cpp_backend;
TENSOR_OPS_EXPORTED tensor_ops_get_backend tensor_ops_cuda_backend;

#ifdef __cplusplus
}
#endif

#endif
