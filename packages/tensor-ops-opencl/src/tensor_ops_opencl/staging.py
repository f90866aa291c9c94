"""Host arrays on a device with memory of its own: through pinned memory, copies beside kernels.

Rows go in pieces through two lanes, each with a queue and memory that is used again. While one lane
computes, the other one's data is on its way.
"""

from typing import Any

import numpy as np

from tensor_ops_opencl.call import Call, launch
from tensor_ops_opencl.layouts import angle_rows, exportable, plain, target_for
from tensor_ops_opencl.session import Session

__all__ = ["run"]

Array = np.ndarray[Any, Any]

#: Bytes of each input that are on their way at once: small enough for copies to overlap, large
#: enough for the bus.
PIECE = 4 * 2**20


class Lane:
    """A queue with pinned and device memory for one piece of every full array."""

    def __init__(self, cl: Any, here: Session) -> None:
        self.queue = here.new_queue()
        self._cl = cl
        self._context = here.context
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


def run(cl: Any, here: Session, call: Call, results: tuple[Array, ...]) -> None:
    """Run a call whose arrays are not in the device's memory."""
    lanes = _lanes(cl, here)
    try:
        _run(cl, here, call, results, lanes)
    except BaseException:
        # What is left of this call must not be taken for results of the next.
        del here.own.lanes
        raise


def _lanes(cl: Any, here: Session) -> tuple[Lane, Lane]:
    try:
        lanes: tuple[Lane, Lane] = here.own.lanes
    except AttributeError:
        lanes = here.own.lanes = Lane(cl, here), Lane(cl, here)
    return lanes


def _run(
    cl: Any, here: Session, call: Call, results: tuple[Array, ...], lanes: tuple[Lane, Lane]
) -> None:
    x = next(iter(call.inputs.values()))
    n, rows = call.walk.counts(x.shape)
    targets = [target_for(result) for result in results]
    outputs = [target.reshape(rows, n) for target in targets]
    full: dict[str, Array] = {}
    whole: dict[str, Any] = {}
    extra: list[np.generic] = []
    for name, array in call.inputs.items():
        if array is None:
            whole[name] = None
        elif call.kinds[name].is_full:
            full[name] = array.reshape(rows, n)
        elif call.kinds[name].role == "half_rows":
            memory, repeated = angle_rows(x, array)
            extra += map(np.uint64, repeated)
            whole[name] = _upload(cl, here, lanes[0], memory)
        else:
            whole[name] = _upload(cl, here, lanes[0], plain(array))
    lanes[0].queue.finish()  # the other lane reads them too
    step = max(1, PIECE // (n * max(array.itemsize for array in full.values())))
    for index, start in enumerate(range(0, rows, step)):
        lane = lanes[index % 2]
        lane.finish()
        piece = slice(start, min(start + step, rows))
        slots = {name: slot for slot, name in enumerate(full)}
        inputs = [
            lane.send(slots[name], full[name][piece]) if name in full else whole[name]
            for name in call.inputs
        ]
        places = [
            lane.device_memory(len(full) + k, output[piece].nbytes)
            for k, output in enumerate(outputs)
        ]
        launch(
            call,
            here.programs,
            lane.queue,
            [*inputs, *places],
            extra,
            (n, piece.stop - start, start),
            lambda size, lane=lane: lane.device_memory(-1, size),  # type: ignore[misc]
        )
        for k, (output, place) in enumerate(zip(outputs, places, strict=True)):
            lane.fetch(len(full) + k, place, output[piece])
        lane.queue.flush()
    for lane in lanes:
        lane.finish()
    for result, target in zip(results, targets, strict=True):
        if target is not result:
            result[...] = target


def _upload(cl: Any, here: Session, lane: Lane, array: Array) -> Any:
    """Return a buffer of the device with what every piece needs."""
    flags = cl.mem_flags.READ_ONLY
    memory = cl.Buffer(here.context, flags, array.nbytes)
    cl.enqueue_copy(lane.queue, memory, exportable(array), is_blocking=False)
    return memory
