"""A file that is mapped into memory and read with every offset checked.

The operating system reads a page of the file when it is first used, and may drop it again: a
mapped file takes address space, not memory of the process. A file that another program truncates
while it is mapped ends this process with SIGBUS; replace model files by renaming, as package
managers and downloaders do.
"""

import hashlib
import itertools
import mmap
import os
import struct
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tensor_ops_decode.weights.model_file import MOST_BYTES, FileFormatError, open_model_file

__all__ = ["FileFormatError", "MappedFile"]


class MappedFile:
    """The bytes of a file, read-only, with what the system said of it when it was opened.

    It was last written at `modified`, in nanoseconds. Raises FileFormatError if the file is empty,
    or what `open_model_file` refuses.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(Path(path))
        with open_model_file(self.path) as file:
            self.status = os.fstat(file.fileno())
            self.size, self.modified = self.status.st_size, self.status.st_mtime_ns
            self._map = mmap.mmap(file.fileno(), self.size, access=mmap.ACCESS_READ)

    def check(self, offset: int, length: int, what: str) -> None:
        """Raise FileFormatError unless these bytes are within the file."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise self.error(
                what,
                offset,
                f"it takes {length} bytes",
                f"at most {max(self.size - offset, 0)} in a file of {self.size}",
            )

    def read(self, offset: int, length: int, what: str) -> bytes:
        """Return a copy of some bytes."""
        self.check(offset, length, what)
        if length > MOST_BYTES:
            raise self.error(what, offset, f"it takes {length} bytes", f"at most {MOST_BYTES}")
        return self._map[offset : offset + length]

    def unpack(self, form: struct.Struct, offset: int, what: str) -> int | float | bool:
        """Return the one number that is stored at an offset."""
        self.check(offset, form.size, what)
        return form.unpack_from(self._map, offset)[0]  # type: ignore[no-any-return]

    def text(self, offset: int, length: int, what: str) -> str:
        """Return the UTF-8 text that is stored at an offset."""
        data = self.read(offset, length, what)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            bad = data[error.start : error.start + 4].hex(" ")
            where = offset + error.start
            raise self.error(what, where, f"the bytes {bad}", "UTF-8 text") from None

    def view(self, offset: int, length: int, what: str) -> NDArray[np.uint8]:
        """Return some bytes as an array that is read-only and keeps the file mapped."""
        self.check(offset, length, what)
        return np.frombuffer(self._map, np.uint8, length, offset)

    def digest(self) -> str:
        """Return the SHA-256 of all bytes, in hexadecimal digits."""
        return hashlib.sha256(self._map).hexdigest()

    def release_memory(self) -> None:
        """Give back the memory of what was read, which is read again where it is needed."""
        if sys.platform != "win32":  # which takes it back by itself, when it needs it
            self._map.madvise(mmap.MADV_DONTNEED)

    def end_of_strings(self, offset: int, count: int, what: str) -> int:
        """Return where a row of `count` strings ends, each after its length as a uint64."""
        unpack, data = struct.Struct("<Q").unpack_from, self._map
        try:
            for _ in itertools.repeat(None, count):  # a hundred thousand in files of models
                offset += 8 + unpack(data, offset)[0]
        except (struct.error, OverflowError):  # behind the end of the file
            self.check(offset, 8, what)
        self.check(offset, 0, what)
        return offset

    def error(self, what: str, offset: int, given: str, expected: str) -> FileFormatError:
        """Return an error about a place in this file."""
        return FileFormatError(
            f"{self.path}: {what} at offset {offset}: {given}; expected {expected}"
        )
