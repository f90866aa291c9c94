"""Our ops as users call them: dispatched to the backend that this machine selects."""

from typing import Any

import tensor_ops
from comparison.cases import Case
from peers import Way, ways_of_ops
from tensor_ops.variants import VARIANTS

LABEL = "tensor_ops"
PACKAGES = ("tensor-ops",)


def start(threads: int) -> None:
    """Set the number of threads of the one backend that has any."""
    if tensor_ops.is_backend_available("cpp"):
        import tensor_ops_cpp

        tensor_ops_cpp.set_num_threads(threads)


def ways(case: Case, values: dict[str, Any], out: tuple[Any, ...] | None) -> dict[str, Way]:
    """Return the call of the op, arrays given by position as users do."""
    variant = VARIANTS[case.variant]
    return ways_of_ops(variant.op.public, variant.options, values, out)
