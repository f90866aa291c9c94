"""The OpenCL runtime: pyopencl, the platforms that its loader finds, and what a fork does to them.

Nothing of OpenCL is touched before somebody asks. From then on a forked child must not use it: the
runtimes' threads and connections stay with the parent, and a call would wait for them for ever.
"""

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any

from tensor_ops_opencl.errors import DeviceError

__all__ = ["broken_drivers", "opencl", "platforms"]

_was_used = False
_is_inherited = False


def opencl() -> Any:
    """Return the module pyopencl.

    Raises
    ------
    DeviceError
        If it cannot be imported, or this process was forked from one that has used OpenCL.
    """
    if _is_inherited:
        raise DeviceError(
            "this process was forked from one that had used OpenCL, which does not survive a fork; "
            'start it with multiprocessing\'s "spawn" or "forkserver", or use OpenCL first in the '
            "child"
        )
    return _import()


def platforms() -> list[Any]:
    """Return the platforms in the order of the loader, which names no drivers that it cannot load.

    Raises
    ------
    DeviceError
        If there is none, saying what to install; see `opencl` too.
    """
    global _was_used
    cl = opencl()
    _was_used = True
    try:
        found = cl.get_platforms()
    except (cl.Error, RuntimeError) as error:  # of the loader, which may say that there are none
        found, reason = [], f" ({_first_line(error)})"
    else:
        reason = ""
    if found:
        return list(found)
    broken = "; ".join(broken_drivers())
    raise DeviceError(
        f"no OpenCL platform was found{reason}"
        + (f"; drivers that do not load: {broken}" if broken else "")
        + "; install the OpenCL driver of your GPU, or for the CPU: "
        "pip install 'tensor-ops-opencl[pocl]'"
    )


def broken_drivers() -> list[str]:
    """Return the .icd files whose library cannot be loaded, each with the reason."""
    named = os.environ.get("OCL_ICD_VENDORS") or os.environ.get("OPENCL_VENDOR_PATH")
    folder = Path(named or "/etc/OpenCL/vendors")
    files = [folder] if folder.suffix == ".icd" else sorted(folder.glob("*.icd"))
    problems = (_problem_with(file) for file in files)
    return [problem for problem in problems if problem]


@cache
def _import() -> Any:
    try:
        import pyopencl
    except Exception as error:  # a broken installation may raise anything
        raise DeviceError(
            f"pyopencl cannot be imported: {_first_line(error)}; pip install pyopencl"
        ) from error
    return pyopencl


def _problem_with(file: Path) -> str | None:
    try:
        library = file.read_text(encoding="utf-8").strip()
        ctypes.CDLL(library)
    except (OSError, ValueError) as error:
        return f"{file.name}: {_first_line(error)}"
    return None


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _note_fork() -> None:
    global _is_inherited
    _is_inherited = _is_inherited or _was_used


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)
