"""Our C++ backend, called as a module of its own."""

from typing import Any

import tensor_ops_cpp
from comparison.cases import Case
from peers import UnsupportedError, Way, ways_of_ops
from tensor_ops.variants import VARIANTS

LABEL = "tensor_ops_cpp"
PACKAGES = ("tensor-ops-cpp",)


def start(threads: int) -> None:
    """Set the number of threads."""
    tensor_ops_cpp.set_num_threads(threads)


def ways(case: Case, values: dict[str, Any], out: tuple[Any, ...] | None) -> dict[str, Way]:
    """Return the call of the op, arrays given by position as users do."""
    variant = VARIANTS[case.variant]
    if reason := tensor_ops_cpp.supports(variant.op.name, case.dtype, "cpu"):
        raise UnsupportedError(reason)
    return ways_of_ops(tensor_ops_cpp.ops[variant.op.name], variant.options, values, out)
