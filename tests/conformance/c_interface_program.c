/* Loads a backend's library, computes in threads of its own and in a forked child, unloads it, and
 * computes again. CUDA does not outlive a fork: there the child must be told so. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tensor_ops/abi.h>
#include <unistd.h>

enum { kRows = 2000, kColumns = 1000 };

static float x[kRows * kColumns], y[kRows * kColumns];

/* Computes y from x. */
static tensor_ops_status call_silu(const tensor_ops_backend* backend, tensor_ops_error* error) {
  const tensor_ops_op* silu = NULL;
  for (int i = 0; i < backend->op_count; ++i)
    if (strcmp(backend->ops[i]->name, "silu") == 0) silu = backend->ops[i];
  const int64_t shape[2] = {kRows, kColumns};
  tensor_ops_array in, out;
  memset(&in, 0, sizeof in);
  in.data = x;
  in.dtype = TENSOR_OPS_FLOAT32;
  in.dims = 2;
  in.shape = shape;
  in.device_kind = TENSOR_OPS_CPU;
  out = in;
  out.data = y;
  tensor_ops_call call;
  memset(&call, 0, sizeof call);
  call.size = sizeof call;
  call.inputs = &in;
  call.input_count = 1;
  call.outputs = &out;
  call.output_count = 1;
  return backend->call(silu, &call, error);
}

static int is_silu_right(const tensor_ops_backend* backend) {
  tensor_ops_error error;
  if (call_silu(backend, &error) != TENSOR_OPS_OK) {
    printf("%s\n", error.message);
    return 0;
  }
  for (int i = 0; i < kRows * kColumns; ++i) {
    const double expected = x[i] / (1 + exp(-x[i]));
    if (!(fabs(y[i] - expected) <= 1e-6 + 1e-6 * fabs(expected))) return 0;
  }
  memset(y, 0, sizeof y);
  return 1;
}

static int is_silu_refused(const tensor_ops_backend* backend) {
  tensor_ops_error error;
  const char* reason = backend->unavailable_reason();
  if (!reason || !strstr(reason, "forked")) return 0;
  if (call_silu(backend, &error) != TENSOR_OPS_UNAVAILABLE) return 0;
  return strstr(error.message, reason) != NULL;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  for (int i = 0; i < kRows * kColumns; ++i) x[i] = (float)(i % 1000) / 100 - 5;
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    printf("%s\n", dlerror());
    return 1;
  }
  tensor_ops_get_backend* get = NULL;
  *(void**)&get = dlsym(library, argv[2]);
  const tensor_ops_backend* backend = NULL;
  tensor_ops_error error;
  if (!get || get(TENSOR_OPS_ABI_VERSION, &backend, &error) != TENSOR_OPS_OK) return 1;
  printf("%s has %d ops\n", backend->name, backend->op_count);
  fflush(stdout);
  if (!is_silu_right(backend)) return 1;
  const int outlives_fork = strcmp(backend->name, "cuda") != 0;
  const pid_t child = fork();
  if (child == 0)
    _exit((outlives_fork ? is_silu_right(backend) : is_silu_refused(backend)) ? 0 : 1);
  int status = 1;
  if (waitpid(child, &status, 0) != child || status != 0) return 1;
  dlclose(library);
  return is_silu_right(backend) ? 0 : 1;
}
