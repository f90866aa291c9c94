"""Calls on pyopencl arrays: on their own queue, without a wait."""

from typing import Any, NamedTuple

import numpy as np

from tensor_ops_opencl import runtime
from tensor_ops_opencl.call import Call, launch, raise_for, repeats
from tensor_ops_opencl.checks import output_names
from tensor_ops_opencl.programs import programs_of

__all__ = ["run"]


class Hints(NamedTuple):
    """Advice about an array that cannot be used as it is; each is a format of its name."""

    context: str
    order: str
    start: str


COPIES = Hints(
    context="copy it with pyopencl.array.to_device",
    order="pass {}.copy(order='C')",
    start="pass {}.copy()",
)
#: For arrays that take results: a copy made for the call would take the result and be lost.
OTHERS = Hints(
    context="give an array of the same context",
    order="give a contiguous array",
    start="give an array that begins where its buffer does",
)


def run(call: Call) -> tuple[Any, ...]:
    """Enqueue a call on the queue of its first array and return the arrays of its results.

    Raises ValueError if an array has no queue, is not contiguous, or belongs to another context.
    """
    cl = runtime.opencl()
    import pyopencl.array as cl_array

    first, x = next(iter(call.inputs.items()))
    queue = x.queue
    if queue is None:
        raise ValueError(
            f"{call.op}: {first} has no queue to run on; give it one with {first}.with_queue(queue)"
        )
    arrays = {name: array for name, array in call.inputs.items() if array is not None}
    for name, array in arrays.items():
        _check_place(call.op, name, array, queue, COPIES)
    names = output_names(len(call.results_like))
    outputs = dict(zip(names, call.out, strict=True)) if call.out is not None else {}
    for name, array in outputs.items():
        _check_place(call.op, name, array, queue, OTHERS)
    extra = [np.uint64(number) for pair in _repeats(call, x) for number in pair]
    results = call.out or tuple(
        cl_array.empty(queue, x.shape, call.inputs[name].dtype, allocator=x.allocator)
        for name in call.results_like
    )
    if x.size == 0:
        return results
    waits = [event for array in (*arrays.values(), *outputs.values()) for event in array.events]
    try:
        event = launch(
            call,
            programs_of(queue.context, queue.device),
            queue,
            [_memory(call.op, name, array, COPIES) for name, array in call.inputs.items()]
            + [
                _memory(call.op, name, array, OTHERS)
                for name, array in zip(names, results, strict=True)
            ],
            extra,
            (*call.iteration.counts(x.shape), 0),
            lambda size: cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, size),
            wait_for=waits,
        )
    except cl.Error as error:
        raise_for(cl, call.op, error)
        raise
    for result in results:
        result.add_event(event)
    return results


def _check_place(op: str, name: str, array: Any, queue: Any, hints: Hints) -> None:
    if array.context != queue.context:
        raise ValueError(
            f"{op}: {name} belongs to another OpenCL context than the first array; "
            + hints.context.format(name)
        )
    if not array.flags.c_contiguous:
        raise ValueError(
            f"{op}: {name} with strides {array.strides} is not C-contiguous, as arrays on a device "
            f"must be; {hints.order.format(name)}"
        )


def _repeats(call: Call, x: Any) -> list[tuple[int, int]]:
    found = []
    for name, array in call.inputs.items():
        if call.kinds[name].role != "half_rows":
            continue
        repeated = repeats(x.shape[:-1], array.shape[:-1])
        if repeated is None or not array.shape or array.shape[-1] != x.shape[-1] // 2:
            raise ValueError(
                f"{call.op}: {name} with shape {array.shape} repeats in a way that arrays on a "
                f"device cannot; expand it to {(*x.shape[:-1], x.shape[-1] // 2)}"
            )
        found.append(repeated)
    return found


def _memory(op: str, name: str, array: Any, hints: Hints) -> Any:
    """Return the buffer that begins where the array does."""
    if array is None:
        return None
    if not array.offset:
        return array.base_data
    try:
        return array.base_data[array.offset : array.offset + array.nbytes]
    except runtime.opencl().Error as error:
        raise ValueError(
            f"{op}: {name} begins {array.offset} bytes into its buffer, where the device cannot "
            f"begin; {hints.start.format(name)}"
        ) from error
