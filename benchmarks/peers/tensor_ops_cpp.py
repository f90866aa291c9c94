"""Our C++ backend, called as a module of its own."""

import functools
from typing import Any

import tensor_ops_cpp
from comparison.cases import Case
from peers import UnsupportedError, Way
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
    options = dict(variant.options)
    if out is not None:
        options["out"] = out if len(out) > 1 else out[0]
    function = tensor_ops_cpp.ops[variant.op.name]
    return {"": Way(functools.partial(function, *values.values(), **options))}
