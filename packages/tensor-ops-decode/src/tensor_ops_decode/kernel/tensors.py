"""The tensors of layers by hand, and the checks of what a caller gives in their places."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tensor_ops_decode.arguments import whole
from tensor_ops_decode.errors import ProgramError
from tensor_ops_decode.program import Limits

__all__ = [
    "KernelTensor",
    "KernelTensors",
    "argument_of",
    "as_several",
    "check_residual",
    "check_tensor",
    "new_dims",
    "new_dtype",
]


@dataclass(frozen=True)
class KernelTensor:
    """A tensor of a kernel: a weight that was attached, or a value that a layer writes."""

    name: str
    dims: tuple[int, ...]
    dtype: str


#: One tensor, or several that are stacked along their rows, such as those of q, k and v.
KernelTensors: TypeAlias = KernelTensor | Sequence[KernelTensor]

# The arguments of layers that have other names than the slots of nodes that they are for; some have
# them for one kind of node alone.
_ARGUMENTS = {
    "rms_norm_linear weight": "weight_linear",
    "a": "input_a",
    "b": "input_b",
    "cos": "cos_pos_embed",
    "norm": "weight_norm",
    "qkv": "input",
    "sin": "sin_pos_embed",
    "x": "input",
}


def as_several(given: object) -> Iterable[object]:
    """Return what may be one tensor or several as several."""
    return given if isinstance(given, Iterable) and not isinstance(given, str) else (given,)


def argument_of(kind: str, slot: str) -> str:
    """Return the argument of a layer that is for a slot of a kind of node."""
    return _ARGUMENTS.get(f"{kind} {slot}") or _ARGUMENTS.get(slot, slot)


def check_tensor(
    where: str, argument: str, given: object, declared: Mapping[str, KernelTensor]
) -> KernelTensor:
    """Return what a caller gives for an argument of a layer, if it is one of the declared tensors.

    Anything else, such as a name, is a ProgramError.
    """
    if not isinstance(given, KernelTensor):
        raise ProgramError(
            f"{where}: {argument} must be a tensor that attach_input() or a layer has returned, "
            f"got {given!r:.80}"
        )
    if declared.get(given.name) != given:
        raise ProgramError(f"{where}: {argument} is {given.name!r}, no tensor of this kernel")
    return given


def check_residual(where: str, residual: KernelTensor | None, output: KernelTensor) -> None:
    """Raise a ProgramError unless a residual, if there is one, has the sizes of the output."""
    if residual is not None and residual.dims != output.dims:
        raise ProgramError(
            f"{where}: residual must have the rows and columns of the output, {output.dims}, got "
            f"{residual.dims}"
        )


def new_dims(name: str, dims: object, limits: Limits) -> tuple[int, int]:
    """Return the rows and columns of a value, which has those of tokens or of requests.

    Others are a ProgramError.
    """
    tokens, requests = limits.max_tokens, limits.max_requests
    try:
        rows, columns = (whole("dims", each) for each in dims)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        rows, columns = 0, 0
    if rows not in (tokens, requests):
        raise ProgramError(
            f"new_tensor: dims of {name} must be (rows, columns) with {tokens} "
            f"(max_num_batched_tokens) or {requests} (max_num_batched_requests) rows and at least "
            f"one column, got {dims!r:.80}"
        )
    return rows, columns


def new_dtype(name: str, dtype: object) -> str:
    """Return the name of a value's dtype; a ProgramError if it is none that values have."""
    try:
        given = np.dtype(dtype).name  # type: ignore[call-overload]
    except TypeError:
        given = repr(dtype)
    if given not in ("float32", "int32"):
        raise ProgramError(f"new_tensor: {name} must be float32 or int32, got {given}")
    return str(given)
