"""How an op's kernels iterate over its arrays: their work-items, work-groups and launches.

A CPU is given one work-item for each of its pieces of work: its vectors are those of the kernel's
types, and a barrier would cost it more than a row. A GPU is given lanes that share a row. What
decides between them is the length of the row alone, so that the bits of a row do not depend on how
many there are.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tensor_ops_opencl.device import Device

__all__ = [
    "ELEMENTS",
    "PAIRS",
    "ElementIteration",
    "PairIteration",
    "KernelLaunch",
    "Launches",
    "RowIteration",
    "Iteration",
]

#: Rows longer than this are split among groups, in parts of this many elements.
LONGEST_WHOLE_ROW = 32768
PART = 16384

#: What a work-item of a CPU has to do, in elements, to be worth its launch.
CPU_PIECE = 16384
#: Pieces for each core, so that one that is held up leaves its share to the others.
PIECES_PER_CORE = 4

GPU_LANES = 256
#: Work-items of a group of short rows.
GPU_GROUP = 128
#: Vectors that a lane of a GPU works on before another lane pays.
VECTORS_PER_LANE = 4

_COUNT = np.dtype(np.uint64)
_SMALL_COUNT = np.dtype(np.uint32)


class KernelLaunch(NamedTuple):
    """One kernel to launch.

    `numbers` are its arguments after the op's own; None stands for the buffer in which kernels
    leave numbers for later ones.
    """

    kernel: str
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    numbers: tuple[int | None, ...]
    types: tuple[np.dtype[np.unsignedinteger] | None, ...]


class Launches(NamedTuple):
    """Kernels to build and to launch for one call.

    `scratch` is how many numbers of the type to compute in the kernels hand on to the next.
    """

    options: tuple[str, ...]
    kernels: tuple[KernelLaunch, ...]
    scratch: int = 0


class Iteration(ABC):
    """How the kernels of an op iterate over its arrays."""

    def counts(self, shape: Sequence[int]) -> tuple[int, int]:
        """Return the length of a row and the number of rows, the units that work is cut in."""
        return shape[-1], math.prod(shape[:-1])

    @abstractmethod
    def launches(self, device: Device, size: int, n: int, rows: int, first: int) -> Launches:
        """Return the launches for `rows` rows of length `n`, from row `first` on.

        `size` is that of the type to compute in.
        """


class ElementIteration(Iteration):
    """Over elements one by one, whatever their shape."""

    def counts(self, shape: Sequence[int]) -> tuple[int, int]:
        return 1, math.prod(shape)

    def launches(self, device: Device, size: int, n: int, rows: int, first: int) -> Launches:
        width = _width(device, size)
        lanes = _most_lanes(device)
        span = CPU_PIECE if lanes == 1 else lanes * width * VECTORS_PER_LANE
        groups = -(-n * rows // span)
        only = KernelLaunch(
            "elements", (groups * lanes,), (lanes,), (n * rows, span), (_COUNT, _COUNT)
        )
        return Launches(_options(width, lanes, 1), (only,))


@dataclass(frozen=True)
class RowIteration(Iteration):
    """Over rows that are measured before they are written, such as for their largest element."""

    kernels: tuple[str, ...]  # those for the parts of long rows
    quantities: int  # the numbers that each part hands on to the next kernel

    def launches(self, device: Device, size: int, n: int, rows: int, first: int) -> Launches:
        if n > LONGEST_WHOLE_ROW:
            return self._split(device, size, n, rows)
        width, lanes, together = _shape_for(device, size, n)
        sizes, per = _sizes_for(device, lanes, together, n, rows)
        only = KernelLaunch("whole_rows", *sizes, (n, rows, per), (_COUNT, _COUNT, _SMALL_COUNT))
        options = _options(width, lanes, together) + _kept(device, size)
        return Launches(options, (only,))

    def _split(self, device: Device, size: int, n: int, rows: int) -> Launches:
        width = _width(device, size)
        lanes = _most_lanes(device)
        parts = -(-n // PART)
        sizes = (parts * lanes, rows), (lanes, 1)
        numbers, types = (n, rows, PART, None), (_COUNT, _COUNT, _COUNT, None)
        kernels = tuple(KernelLaunch(name, *sizes, numbers, types) for name in self.kernels)
        options = (*_options(width, lanes, 1), "-DPARTS")
        return Launches(options, kernels, parts * rows * self.quantities)


class PairIteration(Iteration):
    """Over rows whose pairs of elements are computed independently."""

    def launches(self, device: Device, size: int, n: int, rows: int, first: int) -> Launches:
        width, lanes, together = _shape_for(device, size, n // 2)
        sizes, per = _sizes_for(device, lanes, together, n, rows)
        numbers, types = (n, rows, first, per), (_COUNT, _COUNT, _COUNT, _SMALL_COUNT)
        return Launches(
            _options(width, lanes, together),
            (KernelLaunch("rows_of_pairs", *sizes, numbers, types),),
        )


ELEMENTS = ElementIteration()
PAIRS = PairIteration()


def _options(width: int, lanes: int, together: int) -> tuple[str, ...]:
    return f"-DWIDTH={width}", f"-DLANES={lanes}", f"-DROWS={together}"


def _width(device: Device, size: int) -> int:
    # PoCL's compiler dies of vectors of 16 floats where the CPU has no AVX-512.
    return (32 if device.kind == "cpu" else 16) // size


def _kept(device: Device, size: int) -> tuple[str, ...]:
    """Return the option for how much of a row stays in local memory, which is a CPU's cache."""
    is_room = device.max_shared_memory > LONGEST_WHOLE_ROW * size
    return (f"-DKEPT={LONGEST_WHOLE_ROW}",) if device.kind == "cpu" and is_room else ()


def _most_lanes(device: Device) -> int:
    return 1 if device.kind == "cpu" else _power_below(min(GPU_LANES, device.max_work_group_size))


def _shape_for(device: Device, size: int, n: int) -> tuple[int, int, int]:
    """Return the width of vectors, the lanes of a row and the rows of a group."""
    width = _width(device, size)
    if device.kind == "cpu":
        return width, 1, 1
    wanted = -(-n // (width * VECTORS_PER_LANE))
    lanes = min(1 << max(wanted - 1, 0).bit_length(), _most_lanes(device))
    most = _power_below(min(GPU_GROUP, device.max_work_group_size))
    return width, lanes, 1 if lanes == 1 else max(1, most // lanes)


def _sizes_for(
    device: Device, lanes: int, together: int, n: int, rows: int
) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], int]:
    """Return global and local size, and the rows of a work-item."""
    if lanes > 1:
        groups = -(-rows // together)
        return ((groups * lanes, together), (lanes, together)), 1
    if device.kind != "cpu":
        group = _power_below(min(GPU_GROUP, device.max_work_group_size))
        return ((-(-rows // group) * group,), (group,)), 1
    fair = rows // (device.compute_units * PIECES_PER_CORE)
    per = max(1, min(CPU_PIECE // max(n, 1), fair))
    return ((-(-rows // per),), (1,)), per


def _power_below(number: int) -> int:
    """Return the largest power of two that is not larger."""
    return 1 << (number.bit_length() - 1)
