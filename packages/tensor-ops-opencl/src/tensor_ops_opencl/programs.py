"""Programs: their source, built once per context, device and options, and kernels per thread."""

import re
import threading
import warnings
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib import resources
from typing import Any

import numpy as np

from tensor_ops_opencl import runtime
from tensor_ops_opencl.device import Device, describe
from tensor_ops_opencl.errors import BuildError, DeviceError

__all__ = ["Programs", "programs_of", "source"]

_INCLUDE = re.compile(r'^#include "(.+)"$', re.MULTILINE)


#: Launches that a thread keeps, each for one shape of one op.
MOST_PREPARED = 1024


class _OfOneThread(threading.local):
    """A kernel object keeps its arguments, so that two threads cannot share one."""

    def __init__(self) -> None:
        self.kernels: dict[Any, Any] = {}
        self.prepared: dict[Any, Any] = {}


class Programs:
    """The programs of one device in one context of pyopencl."""

    def __init__(self, context: Any, device: Device) -> None:
        self.context = context
        self.device = device
        self._programs: dict[tuple[str, tuple[str, ...]], Any] = {}
        self._lock = threading.Lock()
        self._own = _OfOneThread()

    @property
    def prepared(self) -> dict[Any, Any]:
        """Launches that this thread has prepared, by the call."""
        prepared = self._own.prepared
        if len(prepared) > MOST_PREPARED:
            prepared.clear()
        return prepared

    def kernel(
        self, op: str, options: tuple[str, ...], name: str, scalars: Sequence[np.dtype[Any] | None]
    ) -> Any:
        """Return this thread's kernel of an op, which is the stem of a .cl file.

        `scalars` has the type of each argument, None for buffers. Raises BuildError if the device's
        compiler refuses the program, DeviceError if pyopencl wants to cache what it has built, and
        cannot.
        """
        kernels, key = self._own.kernels, (op, options, name)
        if key in kernels:
            return kernels[key]
        try:
            kernel = runtime.opencl().Kernel(self._program(op, options), name)
            kernel.set_scalar_arg_dtypes(list(scalars))
        except (OSError, KeyError) as error:  # a KeyError is how pyopencl says it of programs
            raise DeviceError(
                f"pyopencl cannot write its cache: {error}; set XDG_CACHE_HOME to a folder that "
                "can be written, or PYOPENCL_NO_CACHE=1"
            ) from error
        kernels[key] = kernel
        return kernel

    def _program(self, op: str, options: tuple[str, ...]) -> Any:
        with self._lock:
            program = self._programs.get((op, options))
            if program is None:
                program = self._programs[op, options] = self.build(op, options)
            return program

    def build(self, op: str, options: tuple[str, ...]) -> Any:
        cl = runtime.opencl()
        given = ["-cl-std=CL1.2", "-w", *options]
        if self.device.rounds_division:
            given += ["-cl-fp32-correctly-rounded-divide-sqrt", "-DROUNDS_DIVISION"]
        try:
            # A compiler that says anything at all makes pyopencl warn.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", cl.CompilerWarning)
                return cl.Program(self.context, source(op)).build(
                    options=given, devices=[self.device.handle]
                )
        except cl.Error as error:
            raise BuildError(
                f"the compiler of {self.device}, driver {self.device.driver}, refused {op}.cl\n"
                f"options: {' '.join(given)}\nlog:\n{str(error).strip()}"
            ) from error


@lru_cache(maxsize=16)
def programs_of(context: Any, handle: Any) -> Programs:
    """Return the programs of a device in a caller's context, kept for the contexts used last."""
    runtime.note_use()
    return Programs(context, describe(handle))


@cache
def source(op: str) -> str:
    """Return the source of an op with what it includes in place.

    An #include of OpenCL needs a path that the compiler can open, which a zipped package has not.
    """
    return _text(f"{op}.cl")


def _text(name: str) -> str:
    text = (resources.files("tensor_ops_opencl") / "ops" / name).read_text(encoding="utf-8")

    def included(match: re.Match[str]) -> str:
        line = text.count("\n", 0, match.start()) + 2
        return f'#line 1 "{match[1]}"\n{_text(match[1])}#line {line} "{name}"'

    return _INCLUDE.sub(included, text)
