"""A progress bar of one line, for terminals only."""

import shutil
from typing import TextIO

__all__ = ["ProgressBar"]

BAR = 24


class ProgressBar:
    """Show how many of some steps are done, and what runs now.

    Nothing is written where `stream` is no terminal; the line is wiped at the end.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream if stream.isatty() else None

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *exception: object) -> None:
        self._write("")

    def show(self, done: int, total: int, text: str) -> None:
        """Show how many steps are done of all, and a text behind the bar."""
        filled = BAR * done // max(total, 1)
        self._write(f"[{'#' * filled:.<{BAR}}] {text}")

    def _write(self, text: str) -> None:
        if self._stream is not None:
            columns = shutil.get_terminal_size().columns - 1
            self._stream.write("\r\x1b[K" + text[:columns])
            self._stream.flush()
