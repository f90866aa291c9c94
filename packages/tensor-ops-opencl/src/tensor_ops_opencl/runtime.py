"""The OpenCL runtime: pyopencl, the platforms that its loader finds, and what a fork does to them.

OpenCL is first used when a device is asked for. From then on a forked child must not use it: the
runtimes' threads and connections stay with the parent, and a call would wait for them for ever.
"""

import os
import threading
from functools import cache
from typing import Any

from tensor_ops_opencl import drivers
from tensor_ops_opencl.errors import DeviceError, first_line

__all__ = ["FORKED", "is_inherited", "note_use", "opencl", "platforms"]

#: Why a child of a process that has used OpenCL cannot.
FORKED = (
    "this process was forked after the device was used, and OpenCL does not survive a fork; start "
    'children with multiprocessing\'s "spawn" or "forkserver", or use OpenCL first in the child'
)

_platforms: list[Any] = []
_lock = threading.Lock()
_was_used = False
_is_inherited = False


def opencl() -> Any:
    """Return the module pyopencl.

    Raises DeviceError if it cannot be imported, or this process was forked from one that has used
    OpenCL.
    """
    if _is_inherited:
        raise DeviceError(FORKED)
    return _import()


def is_inherited() -> bool:
    """Return whether this process was forked from one that has used OpenCL."""
    return _is_inherited


def note_use() -> None:
    """Note that a driver is at work, so that children forked from now on are told."""
    global _was_used
    _was_used = True


def platforms() -> list[Any]:
    """Return the platforms in the order of the loader, which names no drivers that it cannot load.

    Raises DeviceError if there is none, saying what to install; see `opencl` too.
    """
    global _was_used
    cl = opencl()
    note_use()
    reason = ""
    with _lock:
        if not _platforms:
            try:
                with drivers.registered():
                    _platforms.extend(cl.get_platforms())
            except (cl.Error, RuntimeError) as error:  # of the loader, where there are none
                reason = f" ({first_line(error)})"
        if _platforms:
            return list(_platforms)
        _was_used = False
    broken = "; ".join(drivers.broken())
    raise DeviceError(
        f"no OpenCL platform was found{reason}"
        + (f"; drivers that do not load: {broken}" if broken else "")
        + f"; install the OpenCL driver of your GPU, or for the CPU: {drivers.for_cpu()}"
    )


@cache
def _import() -> Any:
    try:
        import pyopencl
    except Exception as error:  # a broken installation may raise anything
        raise DeviceError(
            f"pyopencl cannot be imported: {first_line(error)}; pip install pyopencl"
        ) from error
    return pyopencl


def _note_fork() -> None:
    global _is_inherited
    _is_inherited = _is_inherited or _was_used


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)
