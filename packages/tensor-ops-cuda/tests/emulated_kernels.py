"""Kernels of the tests, compiled with an emulated runtime of their own."""

import ctypes
import subprocess
from enum import IntEnum
from pathlib import Path

import numpy as np
import pytest
from emulated import CudaError, Runtime

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent
ROOT = PACKAGE.parents[1]
PROGRAM = TESTS / "programs/cooperative_kernels.cpp"
FOLDERS = (PACKAGE / "emulation", PACKAGE / "native", ROOT / "native", TESTS)
EMULATION = PACKAGE / "emulation"
# Files of the emulation that run a grid without the rest of CUDA's runtime.
GRID = tuple(
    EMULATION / f"{name}.cpp" for name in ("device", "fiber", "lines", "running_grid", "scheduler")
)
SOURCES = (PROGRAM, PACKAGE / "native/launch/cuda.cpp", *sorted(EMULATION.glob("*.cpp")))

unsanitized = pytest.mark.unsanitized(reason="the kernels have no sanitizer, which fibers need")


# How many products the tensor cores of a GPU add at once, and with how many extra bits.
HOPPER, AMPERE, VOLTA = (16, 2), (8, 1), (4, 0)


class Order(IntEnum):
    """As ``emulation::Order``."""

    RANDOM = 0
    FIRST_READY = 1
    WARP_BEHIND = 2


def compile_kernels(compiler, path, sources=SOURCES):
    """Compile kernels and an emulated runtime into a library.

    All in one, as the package's own sources are compiled: they read the same headers.
    """
    options = ["-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-shared", "-fvisibility=hidden"]
    options += ["-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-Wno-maybe-uninitialized"]
    command = [compiler, *options, *(f"-I{folder}" for folder in FOLDERS), "-x", "c++", "-"]
    done = subprocess.run(
        [*command, "-o", str(path)],
        input="".join(f'#include "{each}"\n' for each in sources),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


class Kernels(Runtime):
    """The kernels, which run on arrays of the memory of their own emulated device."""

    def __init__(self, path):
        super().__init__(path)
        self.library.error_message.restype = ctypes.c_char_p

    def run(self, kernel, *args):
        """Run a kernel to its end; arrays are given by their addresses."""
        if getattr(self.library, f"run_{kernel}")(*args):
            raise CudaError(self.library.error_message().decode())

    def array(self, host):
        """Return the address of a copy on the device."""
        return ctypes.c_void_p(self.memory(np.asarray(host)))

    def values(self, address, count, dtype=np.uint32):
        return self.read(address.value, count, dtype)

    def reset(self):
        """Forget what a test has chosen, and that a kernel has failed."""
        self.emulatedForgetFailure()
        self.emulatedLeaveOut(0)
        self.emulatedSetOrder(Order.RANDOM, 1)
        self.emulatedSetMultiprocessors(4)
        self.emulatedSetSumRule(*HOPPER)
