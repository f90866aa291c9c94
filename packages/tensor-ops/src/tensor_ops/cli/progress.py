"""A progress bar of one line, for terminals only."""

import shutil
from typing import TextIO

__all__ = ["Progress"]

BAR = 24


class Progress:
    """Show how many of `total` steps are done, and what runs now.

    Nothing is written where `stream` is no terminal; the line is wiped at the end.
    """

    def __init__(self, total: int, stream: TextIO) -> None:
        self._total = total
        self._done = 0
        self._stream = stream if stream.isatty() else None

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *exception: object) -> None:
        self._write("")

    def show(self, step: str) -> None:
        """Show the step that begins; the ones before it are done."""
        filled = BAR * self._done // self._total
        bar = "#" * filled + "." * (BAR - filled)
        self._write(f"[{bar}] {self._done}/{self._total}  {step}")
        self._done += 1

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        columns = shutil.get_terminal_size().columns - 1
        self._stream.write("\r\x1b[K" + text[:columns])
        self._stream.flush()
