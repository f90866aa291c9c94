"""A checked call of an op, and what launching its kernels takes."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tensor_ops_opencl.arguments import ParameterKind
from tensor_ops_opencl.errors import DeviceError
from tensor_ops_opencl.iteration import Iteration
from tensor_ops_opencl.programs import Programs

__all__ = ["Call", "launch", "raise_for", "repeats"]


class Call(NamedTuple):
    """A call whose arguments have been checked."""

    op: str
    iteration: Iteration
    dtype: str
    options: tuple[str, ...]  # build options that follow from dtypes and switches
    numbers: tuple[np.generic, ...]  # the op's own numbers, as its kernels take them
    inputs: dict[str, Any]  # by name, in order; None for one that is optional and absent
    kinds: Mapping[str, ParameterKind]
    results_like: tuple[str, ...]  # for each result, the input whose dtype it has
    out: tuple[Any, ...] | None

    @property
    def real(self) -> "np.dtype[np.floating[Any]]":
        """The type that the kernels compute in."""
        return np.dtype(np.float64 if self.dtype == "float64" else np.float32)


def launch(
    call: Call,
    programs: Programs,
    queue: Any,
    buffers: Sequence[Any],
    extra: Sequence[np.generic],
    part: tuple[int, int, int],
    scratch: Callable[[int], Any],
    *,
    options: tuple[str, ...] = (),
    wait_for: Sequence[Any] | None = None,
) -> Any:
    """Enqueue the kernels of a call and return the event of the last.

    `buffers` are those of inputs and outputs, None for an absent one. `extra` are numbers that
    follow the op's own: the repeats of angles. `part` is the length of rows, their number, and the
    number of the first. `scratch` makes a buffer of so many bytes. `options` are build options for
    where the arrays lie.
    """
    numbers = (*call.numbers, *extra)
    key = call.op, call.options, options, part
    prepared = programs.prepared.get(key)
    if prepared is None:
        types = [None] * len(buffers) + [number.dtype for number in numbers]
        prepared = programs.prepared[key] = _prepare(call, programs, types, part, options)
    kernels, scratch_bytes = prepared
    handed_on = scratch(scratch_bytes) if scratch_bytes else None
    event = None
    for kernel, global_size, local_size, sizes in kernels:
        last = [handed_on if size is None else size for size in sizes]
        event = kernel(queue, global_size, local_size, *buffers, *numbers, *last, wait_for=wait_for)
    return event


def _prepare(
    call: Call,
    programs: Programs,
    types: list[Any],
    part: tuple[int, int, int],
    options: tuple[str, ...],
) -> Any:
    """Return the kernels of a call with their sizes, and the bytes that they hand on."""
    if call.dtype == "float64" and not programs.device.has_float64:
        raise DeviceError(f"{call.op}: {programs.device} has no float64; use float32")
    launches = call.iteration.launches(programs.device, call.real.itemsize, *part)
    all_options = call.options + launches.options + options
    kernels = []
    for each in launches.kernels:
        kernel = programs.kernel(call.op, all_options, each.kernel, [*types, *each.types])
        kernels.append((kernel, each.global_size, each.local_size, each.numbers))
    return kernels, launches.scratch * call.real.itemsize


@lru_cache(maxsize=256)
def repeats(rows: tuple[int, ...], angles: tuple[int, ...]) -> tuple[int, int] | None:
    """Return how an array of angles serves rows that it is broadcast to: (each, period).

    Row r takes the angles number ``r // each % period``; `rows` and `angles` are the leading axes
    of both. None is returned where the axes that are repeated lie between others.
    """
    own = (1,) * (len(rows) - len(angles)) + angles
    axes = [(size, mine) for size, mine in zip(rows, own, strict=True) if size > 1]
    each = period = 1
    while axes and axes[-1][1] == 1:
        each *= axes.pop()[0]
    while axes and axes[-1][1] > 1:
        period *= axes.pop()[0]
    return None if any(mine > 1 for _, mine in axes) else (each, period)


def raise_for(cl: Any, op: str, error: Any) -> None:
    """Raise MemoryError for an error of OpenCL that means one; return for any other."""
    status = cl.status_code
    if isinstance(error, cl.MemoryError) or error.code in (
        status.MEM_OBJECT_ALLOCATION_FAILURE,
        status.OUT_OF_RESOURCES,
        status.OUT_OF_HOST_MEMORY,
        status.INVALID_BUFFER_SIZE,
    ):
        raise MemoryError(f"{op}: the device has no memory left for this call: {error}") from error
