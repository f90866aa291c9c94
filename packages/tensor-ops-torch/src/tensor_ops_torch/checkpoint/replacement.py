"""Files that are replaced as a whole: a write that ends early leaves the old one as it was."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

__all__ = ["replacing"]


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a new file to write, which takes the place of `path` when the block ends.

    Until then, and for good if the block raises, what was there stays as it is. The new file is in
    the same folder, on disk before the old one goes, and has the permissions of the old one. Where
    `path` is a link, the file that it names is replaced. What is no file, as a pipe or
    ``/dev/null``, is written itself.

    Parameters
    ----------
    path : path

    Yields
    ------
    Path
        An empty file.

    Raises
    ------
    OSError
        If the file may not be written, or its folder takes no new file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     old = Path(folder, "notes")
    ...     _ = old.write_text("old")
    ...     with contextlib.suppress(KeyboardInterrupt), replacing(old) as new:
    ...         _ = new.write_text("half of the n")
    ...         raise KeyboardInterrupt
    ...     print(old.read_text(), len(os.listdir(folder)))
    old 1
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        yield target
        return
    is_there = target.exists()
    if is_there and not os.access(target, os.W_OK):
        # os.replace asks for the folder only.
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "its folder does not exist", str(path))
    new = _created_beside(target)
    try:
        mode = stat.S_IMODE(os.stat(target if is_there else new).st_mode)
        yield new
        _sync(new, os.O_RDWR)
        os.chmod(new, mode)
        os.replace(new, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise
    if os.name == "posix":
        # The name too is to outlast a power failure; not every file system can promise that.
        with contextlib.suppress(OSError):
            _sync(target.parent, os.O_RDONLY)


def _created_beside(target: Path) -> Path:
    # The suffix stays the last one: it may decide the format.
    new = target.with_name(f".{target.stem[:64]}-{secrets.token_hex(6)}.tmp{target.suffix}")
    try:
        # Not tempfile, whose files nobody else can read: the umask decides, as for any new file.
        os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except OSError as error:
        error.add_note(f"{target} is written to a new file in its folder, which takes its place")
        raise
    return new


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
