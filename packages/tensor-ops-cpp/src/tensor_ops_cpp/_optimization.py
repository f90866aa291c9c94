"""Features of this machine that the extension uses, and the number of its threads."""

import operator
import os

from tensor_ops_cpp import _native
from tensor_ops_cpp._table import Table

__all__ = ["OptimizationInfo", "get_num_threads", "get_optimization_info", "set_num_threads"]


class OptimizationInfo(Table):
    """Result of `get_optimization_info`: a dict that prints as a table."""


def get_optimization_info() -> OptimizationInfo:
    """Describe the instruction-set level and the threads in use.

    Returns
    -------
    OptimizationInfo
        A dict with ``level`` (in use; None where none can be), ``reason`` (why none can be),
        ``compiled_levels`` and ``cpu_levels`` (lowest first), ``isa_cap`` (the value of
        ``TENSOR_OPS_CPP_ISA``), ``features`` (what code of the level uses), ``decode`` (whether
        decode programs were compiled in), ``decode_products`` (the level with what products of
        decode programs use beside it: ``vnni``, ``bf16``, ``amx``, ``dotprod``, ``i8mm``),
        ``amx`` (whether they use tiles, and why not), ``openmp`` (False: the threads are the
        module's own) and ``num_threads``.
    """
    products, tiles = _native.decode_products() if _native.runs_programs else ("", "")
    return OptimizationInfo(
        level=_native.level(),
        reason=_native.unavailable_reason(),
        compiled_levels=_native.compiled_levels(),
        cpu_levels=_native.cpu_levels(),
        isa_cap=os.environ.get("TENSOR_OPS_CPP_ISA") or None,
        features=_native.features(),
        decode=_native.runs_programs,
        decode_products=products or None,
        amx=tiles or None,
        openmp=False,
        num_threads=_native.num_threads(),
    )


def get_num_threads() -> int:
    """Return the most threads that a call uses.

    That is the number given to :func:`set_num_threads`, else the least of the CPUs in the process's
    affinity mask, its cgroup's CPU quota and ``OMP_NUM_THREADS``. Small calls use one thread.
    """
    return _native.num_threads()


def set_num_threads(n: int) -> None:
    """Set the most threads that a call uses, for the whole process.

    Parameters
    ----------
    n : int
        At least 1. More than 64, or than there are CPUs if that is more, is taken as that number.
    """
    if isinstance(n, bool):
        raise TypeError("set_num_threads: n must be an int, got bool")
    try:
        count = operator.index(n)
    except TypeError:
        raise TypeError(f"set_num_threads: n must be an int, got {type(n).__name__}") from None
    if count < 1:
        raise ValueError(f"set_num_threads: n must be at least 1, got {count}")
    _native.set_num_threads(min(count, 2**20))
