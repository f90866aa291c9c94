"""Files that others made: opened without waiting for them, and refused with what they are instead.

A path may lead to a pipe, which would be waited for, or to a device without an end. What was cloned
or downloaded may be a short text in the place of the file itself, which every reader would call
damaged in its own words.
"""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack
from typing import BinaryIO

from tensor_ops.errors import TensorOpsError

__all__ = ["WrongFileError", "kind_of_file", "open_regular", "open_without_waiting"]

_HTML = (
    "an HTML page, as a hub shows to those who have to log in first; download the file again and "
    "look at its beginning"
)
# Stand-ins for files, by how they begin, in small letters.
_STAND_INS = {
    b"version https://git-lfs.github.com/spec/": (
        "a pointer of git LFS to the file, and not the file itself; run 'git lfs pull' in its "
        "repository, or download the file"
    ),
    b"<!doctype html": _HTML,
    b"<html": _HTML,
}
_BEGINNING = 512  # bytes; more than the longest of these, and any space before it


class WrongFileError(TensorOpsError):
    """Something is in the place of a file that cannot be it, whatever the file is for."""


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file for reading, if it is a regular one that has something in it.

    Parameters
    ----------
    path : path-like
        A file, or a link to one.

    Raises
    ------
    WrongFileError
        If it is a pipe or a device, is empty, or is a pointer of git LFS or an HTML page.
    OSError
        If it cannot be opened; a folder cannot.
    """
    with ExitStack() as stack:
        file = stack.enter_context(open(path, "rb", opener=open_without_waiting))
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise WrongFileError(
                f"{os.fspath(path)}: is {kind_of_file(mode)}, no regular file; put the file in its "
                "place"
            )
        if problem := _problem_with(file.peek(_BEGINNING)[:_BEGINNING]):
            raise WrongFileError(f"{os.fspath(path)}: {problem}")
        stack.pop_all()
        return file


def open_without_waiting(name: str, flags: int) -> int:
    """Open a file as the `opener` of Python's ``open``; a pipe is not waited for."""
    return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))


def kind_of_file(mode: int) -> str:
    """Return the kind of a file that is not regular, in words, by its mode."""
    if stat.S_ISDIR(mode):
        return "a folder"
    return "a pipe" if stat.S_ISFIFO(mode) else "a device or a socket"


def _problem_with(beginning: bytes) -> str | None:
    """Return what is wrong with a file that begins so."""
    if not beginning:
        return "the file is empty; download it again"
    text = beginning.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    found = next((what for begin, what in _STAND_INS.items() if text.startswith(begin)), None)
    return found and f"the file is {found}"
