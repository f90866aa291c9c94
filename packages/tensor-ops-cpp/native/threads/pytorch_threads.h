// The threads that PyTorch computes with, of its OpenMP runtime.
// Tested by packages/tensor-ops-torch/tests/operators/test_pytorch_threads.py.
//
// After each loop of PyTorch they spin for milliseconds, on the CPUs that other threads would need.
// While they do, they begin with a loop of ours at once.
#pragma once

#include "declaration/shared.h"

namespace tensor_ops {

// While one lives, what the thread computes is for tensors of PyTorch, if it is said so.
class TensorCall {
 public:
  TENSOR_OPS_SHARED explicit TensorCall(bool is_for_tensors);
  TENSOR_OPS_SHARED ~TensorCall();
  TensorCall(const TensorCall&) = delete;
  TensorCall& operator=(const TensorCall&) = delete;
};

// torch.get_num_threads(); 0 where the call is for no tensors, or is part of a loop of PyTorch.
int pytorch_num_threads();

// Whether those threads exist and spin, as far as is known; asked once in a call. It takes a
// microsecond.
bool pytorch_threads_spin();

// Calls help(context, number) on each of them, the calling one included, and waits for all.
// Only where they spin.
void run_on_pytorch_threads(void (*help)(const void* context, int number), const void* context);

}  // namespace tensor_ops
