/* Lists what the C++ backend can do, and calls softmax, through the C interface. */
#include <stdio.h>
#include <string.h>
#include <tensor_ops/abi.h>

int main(void) {
  const tensor_ops_backend* backend;
  const tensor_ops_op* softmax = NULL;
  const double scale = 1.0;
  const int64_t shape[1] = {3};
  float x[3] = {0.0f, 1.0f, 2.0f};
  tensor_ops_array row = {x, TENSOR_OPS_FLOAT32, 1, shape, NULL, TENSOR_OPS_CPU, 0};
  tensor_ops_call call = {sizeof call, &row, &row, &scale, 1, 1, 1, 0, 0, NULL};
  tensor_ops_error error;
  int32_t i;

  if (tensor_ops_cpp_backend(TENSOR_OPS_ABI_VERSION, &backend, &error) != TENSOR_OPS_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  printf("%s %s, %s\n", backend->name, backend->version, backend->configuration);
  for (i = 0; i < backend->op_count; ++i) {
    printf("%s: %s\n", backend->ops[i]->name, backend->ops[i]->formula);
    if (strcmp(backend->ops[i]->name, "softmax") == 0) softmax = backend->ops[i];
  }
  if (backend->call(softmax, &call, &error) != TENSOR_OPS_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  printf("softmax of 0 1 2 is %.6f %.6f %.6f\n", x[0], x[1], x[2]);
  return 0;
}
