"""The memory that a native backend keeps when it is freed, and uses again."""

import operator

from . import _native
from ._table import Table

__all__ = ["PoolInfo", "pool_info", "set_pool_limit", "trim_pool"]


class PoolInfo(Table):
    """Result of `pool_info`: a dict that prints as a table."""


def pool_info() -> PoolInfo:
    """Describe the memory that is kept: of results, and on CUDA devices pinned memory of copies.

    Returns
    -------
    PoolInfo
        A dict with ``limit`` (bytes that may be kept), ``held_bytes`` and ``held_blocks`` (kept
        now, for calls to come), ``used_bytes`` and ``used_blocks`` (of arrays that are alive, and
        of calls that run), ``hits`` and ``misses`` (requests that took kept memory, and that took
        fresh memory). It prints as a table.

    Examples
    --------
    >>> list(pool_info())[:3]
    ['limit', 'held_bytes', 'held_blocks']
    """
    return PoolInfo(_native.pool_info())


def set_pool_limit(bytes: int) -> None:
    """Set how many bytes may be kept, for the whole process.

    Memory beyond that is given back to the system at once. Memory of arrays that are alive does not
    count.

    Parameters
    ----------
    bytes : int
        0 keeps none.
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
    """Give all memory that is kept back to the system.

    Returns
    -------
    int
        How many bytes that were.
    """
    return _native.trim_pool()
