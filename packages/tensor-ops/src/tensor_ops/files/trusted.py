"""Files that must be the user's own: refused where others can write them, replaced as a whole."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from tensor_ops.errors import ConfigError
from tensor_ops.files.regular import open_without_waiting

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["check_owner", "read", "replace"]

# In bytes. A larger file was named by mistake; it may not fit into memory, or have no end.
LARGEST = 2**24


def read(path: Path, otherwise: str) -> bytes:
    """Return what is in a file that nobody else can write.

    Parameters
    ----------
    path : Path
    otherwise : str
        What the user can do where the file belongs to somebody else, besides taking it over.

    Raises
    ------
    ConfigError
        If the file cannot be read, is too large or, on POSIX systems, if others can write it.
    """
    try:
        # Not waiting for the writer of a pipe that has replaced the file in the meantime.
        with open(path, "rb", opener=open_without_waiting) as file:
            check_owner(path, os.fstat(file.fileno()), otherwise)
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(data) > LARGEST:
        raise ConfigError(f"{path}: is larger than {LARGEST} bytes, so it is something else")
    return data


def check_owner(path: Path, status: os.stat_result, otherwise: str) -> None:
    """Refuse a file that others can write, on POSIX systems.

    The owner of the Python environment decides anyway which code runs here.

    Parameters
    ----------
    path : Path
    status : os.stat_result
        Of the open file, so that nobody can exchange it after this.
    otherwise : str
        What the user can do where the file belongs to somebody else, besides taking it over.

    Raises
    ------
    ConfigError
        If another user owns it, or its mode lets others write it.
    """
    if sys.platform == "win32":
        return
    from shlex import quote

    name = quote(str(path))
    trusted = [0, os.geteuid()]
    if os.path.isdir(sys.prefix):
        trusted.append(os.stat(sys.prefix).st_uid)
    if status.st_uid not in trusted:
        raise ConfigError(
            f"{path}: belongs to user {status.st_uid}, who is neither you nor root nor the owner "
            f"of the Python environment; take it over with 'sudo chown {os.geteuid()} {name}', or "
            f"{otherwise}"
        )
    if status.st_mode & 0o022:
        raise ConfigError(
            f"{path}: others can write it (its mode is {status.st_mode & 0o777:o}); "
            f"take that from them with 'chmod go-w {name}'"
        )


def replace(path: Path, text: str, mode: int) -> None:
    """Write a file with these permissions, as a whole or not at all."""
    import tempfile  # only writing needs it

    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        # JSON can hold a lone surrogate, which UTF-8 cannot: it is written as an escape.
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
