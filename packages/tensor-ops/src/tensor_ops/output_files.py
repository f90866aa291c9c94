"""The files that a command is to write: checked before it measures, and written whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
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
    found = _figure_class() if plot else None
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

    Yields the path to write to: that of a new file beside it, which then takes its place. What is
    no regular file, such as a pipe, is written to as it is.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        yield target
        return
    beside = target.with_name(f".{os.getpid()}.partial{target.suffix}")
    try:
        yield beside
        if target.exists():
            beside.chmod(target.stat().st_mode)
        beside.replace(target)
    except FileNotFoundError as error:
        # The path of the user, and not that of the file beside it.
        raise FileNotFoundError(error.errno, error.strerror, os.fspath(path)) from error
    finally:
        beside.unlink(missing_ok=True)


def _figure_class() -> Any:
    try:
        return import_module("matplotlib.figure").Figure
    except ImportError as error:
        raise TensorOpsError(
            f"--plot needs matplotlib ({error}); install it with: pip install matplotlib"
        ) from error


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
