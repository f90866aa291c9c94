"""The files that a command is to write, checked before it measures."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensor_ops.errors import TensorOpsError

if TYPE_CHECKING:
    from argparse import ArgumentParser

__all__ = ["figure_class_for"]

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


def _figure_class() -> Any:
    try:
        return import_module("matplotlib.figure").Figure
    except ImportError as error:
        raise TensorOpsError(
            f"--plot needs matplotlib ({error}); install it with: pip install matplotlib"
        ) from error


def _require_writable(path: Path) -> None:
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise TensorOpsError(f"{path} cannot be written; nothing was measured")
