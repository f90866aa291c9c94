"""What the compiler makes of the CUDA kernel of decode steps, and what that lets expect of a GPU.

Tested by packages/tensor-ops-cuda/tests/test_decode_machine_code.py and
tests/benchmarks/test_decode_cuda.py.
"""
