"""Our OpenCL backend, called as a module of its own, on the device that it chooses."""

import os
from typing import Any

import tensor_ops_opencl
from comparison.cases import VARIANTS, Case
from peers import UnsupportedError, Way, ways_of_ops

LABEL = "tensor_ops_opencl"
PACKAGES = ("tensor-ops-opencl", "pyopencl", "pocl-binary-distribution")


def start(threads: int) -> None:
    """Set the number of threads where the device is the CPU with PoCL, before it starts them."""
    os.environ["POCL_MAX_PTHREAD_COUNT"] = str(threads)


def ways(case: Case, values: dict[str, Any], out: tuple[Any, ...] | None) -> dict[str, Way]:
    """Return the call of the op, arrays given by position as users do."""
    variant = VARIANTS[case.variant]
    if reason := tensor_ops_opencl.supports(variant.op.name, case.dtype, "cpu"):
        raise UnsupportedError(reason)
    return ways_of_ops(tensor_ops_opencl.ops[variant.op.name], variant.options, values, out)
