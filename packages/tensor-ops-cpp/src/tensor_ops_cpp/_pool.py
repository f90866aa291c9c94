"""The memory of large results, which is kept when they are freed and used again."""

import operator

from tensor_ops_cpp import _native
from tensor_ops_cpp._table import Table

__all__ = ["PoolInfo", "pool_info", "set_pool_limit", "trim_pool"]


class PoolInfo(Table):
    """What `pool_info` returns: a dict that prints as a table."""


def pool_info() -> PoolInfo:
    """Describe the memory that is kept for results.

    Returns
    -------
    PoolInfo
        A dict with ``limit`` (bytes that may be kept; 0: the pool is off), ``held_bytes`` and
        ``held_blocks`` (kept now, for results to come), ``used_bytes`` and ``used_blocks`` (of
        arrays that are alive), ``hits`` and ``misses`` (large results that took kept memory, and
        that took fresh memory).
    """
    return PoolInfo(_native.pool_info())


def set_pool_limit(bytes: int) -> None:
    """Set how many bytes may be kept for results, for the whole process.

    What is kept beyond that is given back to the system at once. Memory of arrays that are alive
    does not count.

    Parameters
    ----------
    bytes : int
        0 turns the pool off.
    """
    if isinstance(bytes, bool):
        raise TypeError("set_pool_limit: bytes must be an int, got bool")
    try:
        limit = operator.index(bytes)
    except TypeError:
        raise TypeError(
            f"set_pool_limit: bytes must be an int, got {type(bytes).__name__}"
        ) from None
    if limit < 0:
        raise ValueError(f"set_pool_limit: bytes must be at least 0, got {limit}")
    _native.set_pool_limit(min(limit, 2**63 - 1))


def trim_pool() -> int:
    """Give all memory that is kept for results back to the system.

    Returns
    -------
    int
        How many bytes that were.
    """
    return _native.trim_pool()
