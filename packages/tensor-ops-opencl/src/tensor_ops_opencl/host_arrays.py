"""Calls on NumPy arrays: in place where the device shares the host's memory, staged elsewhere."""

from typing import Any

import numpy as np

from tensor_ops_opencl import contexts, runtime, staging
from tensor_ops_opencl.call import Call, launch, raise_for
from tensor_ops_opencl.contexts import DeviceContext
from tensor_ops_opencl.host_memory import (
    Array,
    address,
    contiguous,
    exportable,
    shared_input,
    target_for,
)
from tensor_ops_opencl.results import new_array

__all__ = ["run", "make_visible"]

#: What results must be aligned to for streaming, in bytes; halves of rows too.
ALIGNMENT = 16


def run(call: Call) -> tuple[Array, ...]:
    """Run a call on the chosen device and return its results when they are complete."""
    context = contexts.current()
    x = next(iter(call.inputs.values()))
    results = call.out or tuple(
        new_array(x.shape, call.inputs[name].dtype) for name in call.results_like
    )
    if x.size == 0:
        return results
    # A result that kernels cannot write is computed elsewhere and copied.
    targets = [target_for(result) for result in results]
    cl = runtime.opencl()
    compute = _run_in_place if context.device.shares_memory else staging.run
    try:
        compute(cl, context, call, targets)
    except cl.Error as error:
        raise_for(cl, call.op, error)
        raise
    for result, target in zip(results, targets, strict=True):
        if target is not result:
            result[...] = target
    return results


def _run_in_place(cl: Any, context: DeviceContext, call: Call, targets: list[Array]) -> None:
    queue = context.queue()
    flags = cl.mem_flags
    outputs = [_buffer(cl, context, flags.READ_WRITE, target) for target in targets]
    # One memory is one buffer: an input that is overwritten has that of the result.
    known = {}
    if call.out is not None:
        known = {address(t): buffer for t, buffer in zip(targets, outputs, strict=True)}
    access = _access_to_inputs(cl, context)
    inputs: list[Any] = []
    extra: list[np.generic] = []
    memory: Array | None
    overwrites = False
    for name, array in call.inputs.items():
        buffer = None
        if call.kinds[name].is_full:
            memory = contiguous(array)
            buffer = known.get(address(memory)) if known else None
            overwrites = overwrites or buffer is not None
        else:
            memory = shared_input(call, name, extra)
        if buffer is None and memory is not None:
            buffer = _buffer(cl, context, access, memory)
        inputs.append(buffer)
    n, rows = call.iteration.counts(targets[0].shape)
    streams = not overwrites and _should_stream(context, n, targets)
    try:
        launch(
            call,
            context.programs,
            queue,
            [*inputs, *outputs],
            extra,
            (n, rows, 0),
            lambda size: cl.Buffer(context.handle, flags.READ_WRITE, size),
            options=("-DSTREAMS",) if streams else (),
        )
        for target, buffer in zip(targets, outputs, strict=True):
            make_visible(cl, queue, buffer, target.nbytes)
    finally:
        # One wait for all that has been enqueued: waking up is what waiting costs. Nobody may be
        # given this memory while a kernel works on it, whatever has interrupted the call.
        queue.finish()


def _access_to_inputs(cl: Any, context: DeviceContext) -> int:
    """Return the flag for buffers of inputs, which kernels only read.

    A CPU gets none: Intel's runtime copies memory that is declared read-only and does not begin at
    a page whenever a buffer is made of it, which takes longer than most kernels.
    """
    return 0 if context.device.kind == "cpu" else int(cl.mem_flags.READ_ONLY)


def _should_stream(context: DeviceContext, n: int, targets: list[Array]) -> bool:
    """Return whether to write results past the caches, which they would push all else out of."""
    return (
        context.device.kind == "cpu"
        and sum(target.nbytes for target in targets) >= context.device.cache_size // 2
        and (n == 1 or all(n * target.itemsize % (2 * ALIGNMENT) == 0 for target in targets))
        and all(address(target) % ALIGNMENT == 0 for target in targets)
    )


def make_visible(cl: Any, queue: Any, buffer: Any, size: int) -> None:
    """Enqueue what brings the latest bits into the host's memory: mapping a buffer that is there.

    Unmapping what was mapped for reading leaves them there.
    """
    mapped, _ = cl.enqueue_map_buffer(
        queue, buffer, cl.map_flags.READ, 0, (size,), np.uint8, is_blocking=False
    )
    mapped.base.release(queue)


def _buffer(cl: Any, context: DeviceContext, access: int, array: Array) -> Any:
    return cl.Buffer(context.handle, access | cl.mem_flags.USE_HOST_PTR, hostbuf=exportable(array))
