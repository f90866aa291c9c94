"""Host arrays on a device with memory of its own: through pinned memory, copies beside kernels.

Rows go in pieces through two lanes, each with a queue and memory that is used again. While one lane
computes, the other one's data is on its way.
"""

from typing import Any

import numpy as np

from tensor_ops_opencl.call import Call, launch
from tensor_ops_opencl.contexts import DeviceContext
from tensor_ops_opencl.host_memory import Array, exportable, shared_input

__all__ = ["run"]

#: Bytes of each input that are on their way at once: small enough for copies to overlap, large
#: enough for the bus.
PIECE = 4 * 2**20


class Lane:
    """A queue with pinned and device memory for one piece of every full array."""

    def __init__(self, cl: Any, context: DeviceContext) -> None:
        self.queue = context.new_queue()
        self._cl = cl
        self._context = context.handle
        self._pinned: dict[int, tuple[Any, Array]] = {}
        self._on_device: dict[int, Any] = {}
        self._results: list[tuple[Array, Array]] = []

    def device_memory(self, slot: int, size: int) -> Any:
        """Return device memory of at least `size` bytes."""
        memory = self._on_device.get(slot)
        if memory is None or memory.size < size:
            memory = self._cl.Buffer(self._context, self._cl.mem_flags.READ_WRITE, size)
            self._on_device[slot] = memory
        return memory

    def pinned(self, slot: int, size: int) -> Array:
        """Return `size` bytes of pinned host memory."""
        flags = self._cl.mem_flags
        if slot not in self._pinned or self._pinned[slot][0].size < size:
            owner = self._cl.Buffer(self._context, flags.READ_WRITE | flags.ALLOC_HOST_PTR, size)
            access = self._cl.map_flags.READ | self._cl.map_flags.WRITE
            mapped, _ = self._cl.enqueue_map_buffer(self.queue, owner, access, 0, (size,), np.uint8)
            self._pinned[slot] = owner, mapped
        return self._pinned[slot][1][:size]

    def send(self, slot: int, rows: Array) -> Any:
        """Start copying rows to the device and return where they go."""
        memory = self.device_memory(slot, rows.nbytes)
        staged = self.pinned(slot, rows.nbytes)
        np.copyto(staged.view(rows.dtype).reshape(rows.shape), rows)
        self._cl.enqueue_copy(self.queue, memory, staged, is_blocking=False)
        return memory

    def fetch(self, slot: int, memory: Any, rows: Array) -> None:
        """Start copying results from the device; `finish` puts them into `rows`."""
        staged = self.pinned(slot, rows.nbytes)
        self._cl.enqueue_copy(self.queue, staged, memory, is_blocking=False)
        self._results.append((staged.view(rows.dtype).reshape(rows.shape), rows))

    def finish(self) -> None:
        """Wait for what has been started, and store its results."""
        self.queue.finish()
        for staged, rows in self._results:
            np.copyto(rows, staged)
        self._results.clear()


def run(cl: Any, context: DeviceContext, call: Call, targets: list[Array]) -> None:
    """Run a call on a device with memory of its own, and store its results in `targets`."""
    if not hasattr(context.own, "lanes"):
        context.own.lanes = Lane(cl, context), Lane(cl, context)
    try:
        _run_in_pieces(cl, context, call, targets, context.own.lanes)
    except BaseException:
        # The next call must not take what is left of this one for its results.
        del context.own.lanes
        raise


def _run_in_pieces(
    cl: Any, context: DeviceContext, call: Call, targets: list[Array], lanes: tuple[Lane, Lane]
) -> None:
    n, rows = call.iteration.counts(targets[0].shape)
    outputs = [target.reshape(rows, n) for target in targets]
    full = {
        name: array.reshape(rows, n)
        for name, array in call.inputs.items()
        if call.kinds[name].is_full
    }
    extra: list[np.generic] = []
    uploaded = {
        name: _upload(cl, context, lanes[0], shared_input(call, name, extra))
        for name in call.inputs
        if name not in full
    }
    lanes[0].queue.finish()  # the other lane reads them too
    step = max(1, PIECE // (n * max(array.itemsize for array in full.values())))
    for index, start in enumerate(range(0, rows, step)):
        lane = lanes[index % 2]
        lane.finish()
        piece = slice(start, min(start + step, rows))
        sent = {name: lane.send(k, array[piece]) for k, (name, array) in enumerate(full.items())}
        memory = sent | uploaded
        places = [
            lane.device_memory(len(full) + k, output[piece].nbytes)
            for k, output in enumerate(outputs)
        ]
        launch(
            call,
            context.programs,
            lane.queue,
            [*(memory[name] for name in call.inputs), *places],
            extra,
            (n, piece.stop - start, start),
            lambda size, lane=lane: lane.device_memory(-1, size),  # type: ignore[misc]
        )
        for k, (output, place) in enumerate(zip(outputs, places, strict=True)):
            lane.fetch(len(full) + k, place, output[piece])
        lane.queue.flush()
    for lane in lanes:
        lane.finish()


def _upload(cl: Any, context: DeviceContext, lane: Lane, array: Array | None) -> Any:
    """Return a buffer of the device with what every piece needs."""
    if array is None:
        return None
    memory = cl.Buffer(context.handle, cl.mem_flags.READ_ONLY, array.nbytes)
    cl.enqueue_copy(lane.queue, memory, exportable(array), is_blocking=False)
    return memory
