"""Machine code of the CUDA kernel of decode steps, and predictions for GPUs that follow from it.

Tested by packages/tensor-ops-cuda/tests/test_decode_machine_code.py and
tests/benchmarks/test_decode_cuda.py.
"""
