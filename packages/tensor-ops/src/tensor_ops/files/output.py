"""The files that a command is to write: checked before it measures, and written whole."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensor_ops.errors import TensorOpsError

if TYPE_CHECKING:
    from argparse import ArgumentParser

__all__ = ["figure_class_for", "in_the_way", "whole_file"]

PLOT_SUFFIXES = (".svg", ".png", ".pdf")


def figure_class_for(parser: ArgumentParser, json: Path | None, plot: Path | None) -> Any:
    """Return matplotlib's class of figures, or None where nothing is to be drawn.

    Parameters
    ----------
    parser : ArgumentParser
        Of the command, to say what is wrong with its words.
    json, plot : Path or None
        The files that it is to write.

    Raises
    ------
    TensorOpsError
        If one of them cannot be written, or matplotlib is missing.
    """
    if plot and plot.suffix.lower() not in PLOT_SUFFIXES:
        parser.error(f"--plot takes a file that ends in {', '.join(PLOT_SUFFIXES)}")
    found = None
    if plot:
        try:
            found = import_module("matplotlib.figure").Figure
        except ImportError as error:
            raise TensorOpsError(
                f"--plot needs matplotlib ({error}); install it with: pip install matplotlib"
            ) from error
    if json and plot and os.path.realpath(json) == os.path.realpath(plot):
        parser.error(f"--json and --plot both name {plot}; give each a file of its own")
    for path in (json, plot):
        if path:
            _require_writable(path)
    return found


def in_the_way(path: Path) -> str | None:
    """Return what is in the place of a file to be written, or of a folder above it; else None.

    The system's own words for it may be "File exists", or name no path at all.
    """
    if path.is_dir():
        return f"{path} is a folder; name a file in it, or move it away"
    nearest = next((each for each in path.absolute().parents if os.path.lexists(each)), None)
    if nearest is not None and not nearest.is_dir():
        return f"{nearest} is no folder"
    return None


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Have a file written as a whole or, after an error or Ctrl-C, left as it was.

    Yields the path to write to: that of a new, empty file beside it, which takes its place when the
    block ends. The new file is on disk before the old one goes, and has the permissions of the old
    one. Where `path` is a link, the file that it names is replaced. What is no regular file, such
    as a pipe, is written to as it is.

    Raises
    ------
    OSError
        If the folder does not exist or takes no new file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     old = Path(folder, "notes")
    ...     _ = old.write_text("old")
    ...     with suppress(KeyboardInterrupt), whole_file(old) as new:
    ...         _ = new.write_text("half of the n")
    ...         raise KeyboardInterrupt
    ...     print(old.read_text(), len(os.listdir(folder)))
    old 1
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        try:
            yield target
        except OSError as error:
            _name_file(error, path)
            raise
        return
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "its folder does not exist", str(path))
    new = _created_beside(target)
    try:
        mode = stat.S_IMODE(os.stat(target if target.exists() else new).st_mode)
        yield new
        _sync(new, os.O_RDWR)
        os.chmod(new, mode)
        os.replace(new, target)
    except BaseException as error:
        _name_file(error, path)
        with suppress(OSError):
            os.unlink(new)
        raise
    if os.name == "posix":
        # The name too is to outlast a power failure; not every file system can promise that.
        with suppress(OSError):
            _sync(target.parent, os.O_RDONLY)


def _name_file(error: BaseException, path: str | os.PathLike[str]) -> None:
    # The system names none where a disk is full, for example.
    if isinstance(error, OSError) and error.errno is not None and error.filename is None:
        error.filename = os.fspath(path)


def _created_beside(target: Path) -> Path:
    # The suffix stays the last one: it may decide the format.
    new = target.with_name(f".{target.stem[:64]}-{os.urandom(6).hex()}.tmp{target.suffix}")
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


def _require_writable(path: Path) -> None:
    folder = path.absolute().parent
    reason = in_the_way(path)
    if reason is None and not folder.is_dir():
        reason = f"there is no folder {folder}; make it first"
    if reason is None and path.exists() and not os.access(path, os.W_OK):
        reason = "no permission to write it"
    # A new file takes the place of a regular one.
    is_replaced = path.is_file() or not path.exists()
    if reason is None and is_replaced and not os.access(folder, os.W_OK):
        reason = f"no permission to write in {folder}"
    if reason is not None:
        raise TensorOpsError(f"{path} cannot be written: {reason}; nothing was measured")
