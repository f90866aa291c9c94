"""Whether the compiler of a device can be used at all."""

import warnings
from typing import Any

from tensor_ops_opencl import runtime
from tensor_ops_opencl.device import Device
from tensor_ops_opencl.errors import first_line

__all__ = ["problem_with", "NOTHING", "first_error", "found"]

NOTHING = "kernel void nothing() {}"
# By the handles of devices, which live as long as the process.
found: dict[Any, str | None] = {}


def problem_with(device: Device) -> str | None:
    """Return why the compiler of a device compiles nothing, None where it does.

    Only CPUs are asked. Their compilers have a list of processors, and one that is newer than the
    list is refused when the first kernel is built.
    """
    if device.kind != "cpu":
        return None
    if device.handle not in found:
        found[device.handle] = first_error(device.handle)
    return found[device.handle]


def first_error(handle: Any) -> str | None:
    cl = runtime.opencl()
    program = None
    with warnings.catch_warnings():
        # pyopencl warns of what the compiler says, and of a program past the cache.
        warnings.simplefilter("ignore")
        try:
            program = cl.Program(cl.Context([handle]), NOTHING)
            program.compile()
        except cl.Error as error:
            said = _log(cl, program, handle).splitlines()
            errors = (line.strip() for line in said if "error:" in line.lower())
            return next(errors, first_line(error))
    return None


def _log(cl: Any, program: Any, handle: Any) -> str:
    try:
        return str(program.get_build_info(handle, cl.program_build_info.LOG))
    except Exception:  # whatever the driver wrote, it is asked for to explain another error
        return ""
