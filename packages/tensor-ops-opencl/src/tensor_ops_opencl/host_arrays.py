"""Calls on NumPy arrays: in place where the device shares the host's memory, staged elsewhere."""

from typing import Any

import numpy as np

from tensor_ops_opencl import runtime, session, staging
from tensor_ops_opencl.call import Call, launch, raise_for
from tensor_ops_opencl.layouts import angle_rows, exportable, plain, target_for
from tensor_ops_opencl.results import new_array
from tensor_ops_opencl.session import Session

__all__ = ["run"]

Array = np.ndarray[Any, Any]

#: What results must be aligned to for streaming, in bytes; halves of rows too.
ALIGNMENT = 16


def run(call: Call) -> tuple[Array, ...]:
    """Run a call on the chosen device and return its results when they are complete."""
    here = session.current()
    x = next(iter(call.inputs.values()))
    if call.out is not None:
        results = call.out
    else:
        results = tuple(new_array(x.shape, call.inputs[name].dtype) for name in call.results_like)
    if x.size == 0:
        return results
    cl = runtime.opencl()
    try:
        if here.device.shares_memory:
            _run_in_place(cl, here, call, results)
        else:
            staging.run(cl, here, call, results)
    except cl.Error as error:
        raise_for(cl, call.op, error)
        raise
    return results


def _run_in_place(cl: Any, here: Session, call: Call, results: tuple[Array, ...]) -> None:
    queue = here.queue()
    flags = cl.mem_flags
    # Where a result cannot be written in place it is written here and copied.
    targets = [target_for(result) for result in results]
    outputs = [_buffer(cl, here, flags.READ_WRITE, target) for target in targets]
    # One memory is one buffer: an input that is overwritten has that of the result.
    known = {}
    if call.out is not None:
        known = {_address(t): buffer for t, buffer in zip(targets, outputs, strict=True)}
    inputs: list[Any] = []
    extra: list[np.generic] = []
    overwrites = False
    x = next(iter(call.inputs.values()))
    for name, array in call.inputs.items():
        if array is None:
            inputs.append(None)
            continue
        if call.kinds[name].role == "half_rows":
            memory, repeated = angle_rows(x, array)
            extra += map(np.uint64, repeated)
        else:
            memory = plain(array)
        buffer = known.get(_address(memory)) if known and call.kinds[name].is_full else None
        overwrites = overwrites or buffer is not None
        inputs.append(buffer or _buffer(cl, here, _access_to_inputs(cl, here), memory))
    n, rows = call.walk.counts(x.shape)
    streams = not overwrites and _should_stream(here, n, targets)
    try:
        launch(
            call,
            here.programs,
            queue,
            [*inputs, *outputs],
            extra,
            (n, rows, 0),
            lambda size: cl.Buffer(here.context, flags.READ_WRITE, size),
            options=("-DSTREAMS",) if streams else (),
        )
        for target, buffer in zip(targets, outputs, strict=True):
            _make_visible(cl, queue, buffer, target.nbytes)
    finally:
        # One wait for all that has been enqueued: waking up is what waiting costs. Nobody may be
        # given this memory while a kernel works on it, whatever has interrupted the call.
        queue.finish()
    for result, target in zip(results, targets, strict=True):
        if target is not result:
            result[...] = target


def _access_to_inputs(cl: Any, here: Session) -> int:
    """Return the flag for buffers of inputs, which kernels only read.

    On a CPU that is left unsaid: Intel's runtime copies memory that is declared read-only and does
    not begin at a page whenever a buffer is made of it, which takes longer than most kernels.
    """
    return 0 if here.device.kind == "cpu" else int(cl.mem_flags.READ_ONLY)


def _should_stream(here: Session, n: int, targets: list[Array]) -> bool:
    """Return whether results are to go past the caches, which they would push all else out of."""
    return (
        here.device.kind == "cpu"
        and sum(target.nbytes for target in targets) >= here.device.cache_size // 2
        and (n == 1 or all(n * target.itemsize % (2 * ALIGNMENT) == 0 for target in targets))
        and all(_address(target) % ALIGNMENT == 0 for target in targets)
    )


def _make_visible(cl: Any, queue: Any, buffer: Any, size: int) -> None:
    """Enqueue what brings the latest bits into the host's memory: mapping a buffer that is there.

    Unmapping what was mapped for reading leaves them there.
    """
    mapped, _ = cl.enqueue_map_buffer(
        queue, buffer, cl.map_flags.READ, 0, (size,), np.uint8, is_blocking=False
    )
    mapped.base.release(queue)


def _buffer(cl: Any, here: Session, access: int, array: Array) -> Any:
    return cl.Buffer(here.context, access | cl.mem_flags.USE_HOST_PTR, hostbuf=exportable(array))


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])
