"""The best copy that moves as many bytes as the op: the floor of its time.

Half of the bytes are read and half written. Every way of copying that is at hand is timed, the
fastest counts.
"""

import ctypes
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from comparison.cases import REUSED, Case, moved_bytes
from peers import UnsupportedError, Way

LABEL = "copy"
PACKAGES = ("numpy",)
TAKES_ARGUMENTS = False

pool: ThreadPoolExecutor | None = None
_threads = 1


def start(threads: int) -> None:
    """Start the threads that share a copy."""
    global pool, _threads
    _threads = threads
    pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None


def ways(case: Case, values: dict[str, Any], out: tuple[Any, ...] | None) -> dict[str, Way]:
    """Return every way of copying half of the op's bytes."""
    if case.mode != REUSED:
        raise UnsupportedError("a copy goes to memory that is there")
    source = np.full(max(1, moved_bytes(case) // 8), 1.0, np.float32)
    target = np.zeros_like(source)
    made: dict[str, Callable[[], Any]] = {
        "numpy": functools.partial(np.copyto, target, source),
        "memcpy": functools.partial(_shared, _parts(source, target)),
    }
    for name, maker in (("torch", _torch), ("numba", _numba), ("native", _native)):
        try:
            made[name] = maker(source, target)
        except (ImportError, AttributeError):
            continue  # not installed, or without a copy of its own
    return {name: Way(call, functools.partial(_read, target)) for name, call in made.items()}


def _read(target: Any, returned: Any) -> tuple[Any, ...]:
    return (target,)


def _parts(source: Any, target: Any) -> list[tuple[int, int, int]]:
    """Return the addresses and number of bytes that each thread copies."""
    size = -(-source.nbytes // _threads)
    return [
        (target.ctypes.data + at, source.ctypes.data + at, min(size, source.nbytes - at))
        for at in range(0, source.nbytes, size)
    ]


def _shared(parts: list[tuple[int, int, int]]) -> None:
    """Copy one part here and the others in threads; ctypes lets go of the interpreter lock."""
    others = [pool.submit(ctypes.memmove, *part) for part in parts[1:]] if pool else []
    ctypes.memmove(*parts[0])
    for other in others:
        other.result()


def _torch(source: Any, target: Any) -> Callable[[], Any]:
    import torch

    torch.set_num_threads(_threads)
    return functools.partial(torch.from_numpy(target).copy_, torch.from_numpy(source))


def _numba(source: Any, target: Any) -> Callable[[], Any]:
    import numba

    numba.set_num_threads(_threads)
    return functools.partial(_numba_copy(), source, target)


@functools.cache
def _numba_copy() -> Callable[..., Any]:
    import numba

    @numba.njit(parallel=True)
    def copy(source: Any, target: Any) -> None:
        for index in numba.prange(source.size):
            target[index] = source[index]

    return copy


def _native(source: Any, target: Any) -> Callable[[], Any]:
    from tensor_ops_cpp import _native, set_num_threads

    set_num_threads(_threads)
    return functools.partial(_native._copy, source, out=target)
