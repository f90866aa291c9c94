// The threads that PyTorch computes with, of its OpenMP runtime.
// Tested by packages/tensor-ops-torch/tests/operators/test_pytorch_threads.py.
//
// After each parallel loop of PyTorch they spin for milliseconds, on the CPUs that other threads
// would need. While they spin, they start on another parallel loop at once.
#pragma once

#include "declaration/shared.h"

namespace tensor_ops {

// The lifetime of a call of the thread. Only in a call on tensors are PyTorch's threads used.
class TensorCall {
 public:
  TENSOR_OPS_SHARED explicit TensorCall(bool is_on_tensors);
  TENSOR_OPS_SHARED ~TensorCall();
  TensorCall(const TensorCall&) = delete;
  TensorCall& operator=(const TensorCall&) = delete;
};

// torch.get_num_threads(); 0 outside a call on tensors, or inside a parallel loop of PyTorch.
int pytorch_num_threads();

// Says whether those threads exist and spin. The answer is true before the first loop of the
// calling thread, when nothing is known of them; it is found once in a call.
bool pytorch_threads_spin();

// Calls help(context, number) on each of them, the calling one included, and waits for all. May be
// called only after pytorch_threads_spin() has returned true.
void run_on_pytorch_threads(void (*help)(const void* context, int number), const void* context);

}  // namespace tensor_ops
