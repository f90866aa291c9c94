"""The processor itself: the rate at which it reads memory, and that at which it multiplies.

Both methods return seconds as those of engines do: of a gigabyte that is read, and of a billion
multiplications, each with its addition.
"""

import ctypes
import functools
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from decode_peers.cases import Room

__all__ = ["PACKAGES", "open"]

PACKAGES = ("numpy",)
SOURCE = Path(__file__).with_name("processor.c")
BYTES = 1 << 29
READS = 16
ROUNDS = 5_000_000
# Types of the products of a model, by the format in the name of its file.
TYPES = {"F32": "float32", "BF16": "bfloat16", "": "int8"}


class Opened:
    """Memory to read, and the compiled loops.

    Attributes
    ----------
    dtype : str
        Of what is multiplied.
    """

    def __init__(self, model: Path, settings: dict[str, Any], room: Room) -> None:
        self._threads = settings["threads"]
        self.dtype = next(dtype for kind, dtype in TYPES.items() if kind in model.name)
        memory = np.ones(BYTES // 8 + 8, np.uint64)
        self._memory = memory[-memory.ctypes.data % 64 // 8 :][: BYTES // 8]
        self._library = _compiled()

    def decode(self, sequences: int, context: int, new: int) -> float:
        """Return the seconds in which a gigabyte is read."""
        part = BYTES // self._threads // 256 * 256
        begin = self._memory.ctypes.data

        def read(thread: int) -> None:
            for _ in range(READS):
                self._library.read_memory(begin + thread * part, part)

        return self._seconds(read) / (READS * part * self._threads) * 1e9

    def prompt(self, length: int) -> float:
        """Return the seconds of a billion multiplications in the type of the model."""
        multiply = getattr(self._library, f"multiply_{self.dtype}")
        products = ctypes.c_size_t.in_dll(self._library, f"products_{self.dtype}").value
        seconds = self._seconds(lambda thread: multiply(ROUNDS))
        return seconds / (ROUNDS * products * self._threads) * 1e9

    def prompts(self, sequences: int, length: int) -> float:
        """Return what prompt() returns, which does not depend on the tokens."""
        return self.prompt(sequences * length)

    def _seconds(self, work: Callable[[int], Any]) -> float:
        """Return how long the threads take, each of which does the same work."""
        threads = [
            threading.Thread(target=functools.partial(work, number))
            for number in range(self._threads)
        ]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - start


def _compiled() -> Any:
    """Return the library of the C file beside this one; loaded, it needs its file no more."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "processor.so")
        options = ["-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC"]
        subprocess.run(["cc", *options, "-o", made, SOURCE], check=True)
        library = ctypes.CDLL(str(made))
    library.read_memory.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.read_memory.restype = ctypes.c_uint64
    for name in TYPES.values():
        multiply = getattr(library, f"multiply_{name}")
        multiply.argtypes, multiply.restype = [ctypes.c_size_t], ctypes.c_float
    return library


open = Opened
