"""Memory of results: it begins at a page, and that of large ones is used again when they are freed.

Fresh pages cost several times the work that fills them, and devices that share memory want whole
pages to work on in place.
"""

import math
import operator
import os
import threading
import time
from typing import Any

import numpy as np

__all__ = ["new_array", "pool_info", "set_pool_limit", "trim_pool", "rounded_size"]

Array = np.ndarray[Any, Any]

PAGE = 4096
#: Smaller results, in bytes, are not pooled: the allocator keeps their memory itself.
SMALLEST_POOLED = 128 * 1024
#: Seconds after which pooled memory that no result needed is returned to the system.
LONGEST_IDLE = 60.0


def new_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array that is not initialised and, unless it is small, begins at a page."""
    size = math.prod(shape, start=dtype.itemsize)
    if size < PAGE:
        return np.empty(shape, dtype)
    if size < SMALLEST_POOLED or size > _pool.limit:
        return np.ndarray(shape, dtype, _fresh(size))
    # The result's base returns the block to the pool when the last view of it is gone.
    return np.ndarray(shape, dtype, np.asarray(_PooledMemory(_pool.take(size))))


def pool_info() -> dict[str, int]:
    """Describe the memory that is kept for results.

    Returns
    -------
    dict
        ``limit`` (bytes that may be kept), ``held_bytes`` and ``held_blocks`` (kept now).

    Examples
    --------
    >>> import tensor_ops_opencl
    >>> list(tensor_ops_opencl.pool_info())
    ['limit', 'held_bytes', 'held_blocks']
    """
    held = _pool.held()
    return {"limit": _pool.limit, "held_bytes": sum(held), "held_blocks": len(held)}


def set_pool_limit(bytes: int) -> None:
    """Set how many bytes may be kept for results, for the whole process.

    Parameters
    ----------
    bytes : int
        0 turns the pool off. What is kept beyond the limit is given back at once.
    """
    if isinstance(bytes, bool):
        raise TypeError("set_pool_limit: bytes must be an int, got bool")
    try:
        limit = operator.index(bytes)
    except TypeError:
        name = type(bytes).__name__
        raise TypeError(f"set_pool_limit: bytes must be an int, got {name}") from None
    if limit < 0:
        raise ValueError(f"set_pool_limit: bytes must be at least 0, got {limit}")
    _pool.limit = limit
    _pool.trim(limit)


def trim_pool() -> int:
    """Give all memory that is kept for results back to the system.

    Returns
    -------
    int
        How many bytes that were.
    """
    return _pool.trim(0)


class _PooledMemory:
    """Owns the memory of a result and returns it to the pool when no array refers to it."""

    __slots__ = ("__array_interface__", "_memory")

    def __init__(self, memory: Array) -> None:
        self._memory = memory
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        _pool.give(self._memory)


class _MemoryPool:
    """Blocks of memory that are free, reused LIFO: the most recently freed one of a size first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._free: list[tuple[float, Array]] = []  # since when, oldest first
        # A garbage collection within may free a result.
        self._lock = threading.RLock()

    def take(self, size: int) -> Array:
        """Return a block of at least `size` bytes, an eighth more at most."""
        wanted = rounded_size(size)
        with self._lock:
            for index in range(len(self._free) - 1, -1, -1):
                if self._free[index][1].size == wanted:
                    return self._free.pop(index)[1]
        return _fresh(wanted)

    def give(self, block: Array) -> None:
        """Take a block back, and drop what has been here for long or is too much."""
        now = time.monotonic()
        with self._lock:
            self._free.append((now, block))
            while self._free and now - self._free[0][0] > LONGEST_IDLE:
                del self._free[0]
            self.trim(self.limit)

    def trim(self, limit: int) -> int:
        """Drop the oldest blocks until no more than `limit` bytes are held."""
        with self._lock:
            held = total = sum(self.held())
            while self._free and held > limit:
                held -= self._free.pop(0)[1].size
            return total - held

    def held(self) -> list[int]:
        """Return the sizes of the blocks that are held."""
        return [block.size for _, block in self._free]

    def reset(self) -> None:
        """Start empty in a forked child, where a thread of the parent may hold the lock."""
        self._lock = threading.RLock()
        self._free.clear()


def rounded_size(size: int) -> int:
    grain = max(PAGE, 1 << max(size.bit_length() - 4, 0))
    return -(-size // grain) * grain


def _fresh(size: int) -> Array:
    memory: Array = np.empty(size + PAGE, np.uint8)
    skipped = -memory.__array_interface__["data"][0] % PAGE
    return memory[skipped : skipped + size]


def _default_limit() -> int:
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**30
    return min(memory // 16, 4 * 2**30)


_pool = _MemoryPool(_default_limit())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.reset)
