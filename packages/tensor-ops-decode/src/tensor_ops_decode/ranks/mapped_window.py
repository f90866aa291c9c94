"""Memory that the processes of a machine share, by a file that all map and none keeps."""

import contextlib
import mmap
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tensor_ops_decode.kinds.kind import Array

__all__ = ["mapped_window"]

_FOLDER = Path("/dev/shm")  # what is in it is in memory alone


def mapped_window(
    num_bytes: int,
    rank: int,
    gathered: Callable[[Any], list[Any]],
    folder: Path = _FOLDER,
) -> Array | None:
    """Return memory that all ranks share, filled with zeros; None where one cannot map it.

    It begins at a page of memory. `gathered` returns what all ranks give, and rank 0 makes the file
    in the `folder`, if there is such a folder.
    """
    path, mapped = "", None
    if rank == 0 and os.name == "posix":  # elsewhere a file that is mapped cannot be removed
        with contextlib.suppress(OSError):
            path = _new_file(num_bytes, folder)
    try:
        path = gathered(path)[0]
        with contextlib.suppress(OSError, ValueError), open(path, "r+b") as file:
            mapped = mmap.mmap(file.fileno(), num_bytes)
        have_all = all(gathered(mapped is not None))
    finally:
        if rank == 0 and path:
            os.unlink(path)  # it stays as long as it is mapped
    return np.frombuffer(mapped, np.uint8) if mapped is not None and have_all else None


def _new_file(num_bytes: int, folder: Path) -> str:
    place = str(folder) if folder.is_dir() else None
    handle, path = tempfile.mkstemp(prefix="tensor-ops-ranks-", dir=place)
    try:
        if hasattr(os, "posix_fallocate"):
            # Takes the memory now: where it was missing later, a write would end the process.
            os.posix_fallocate(handle, 0, num_bytes)
        else:  # on macOS
            os.truncate(handle, num_bytes)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(handle)
    return path
