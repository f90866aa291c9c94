"""The process of an engine: python -m decode_peers.worker MODULE SETTINGS.

It first says whether the library is there. Then it opens a model, the first token included, and
answers cases with seconds.
"""

import importlib
import importlib.metadata
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from decode_peers.cases import Room
from harness.worker import answer_all, failure, own_stdout

__all__ = ["main"]

STATUS = Path("/proc/self/status")
FIRST_PROMPT = 32


def main() -> None:
    write = own_stdout()
    # Whatever a library raises is why it is left out.
    answer_all(Worker(sys.argv[1], json.loads(sys.argv[2])), write, failure)


class Worker:
    """Questions to an engine."""

    def __init__(self, module: str, settings: dict[str, Any]) -> None:
        self._name, self._settings = module, settings

    def load(self) -> dict[str, Any]:
        """Import the library."""
        self._module = importlib.import_module(f"decode_peers.engines.{self._name}")
        versions = {name: importlib.metadata.version(name) for name in self._module.PACKAGES}
        return {"versions": versions}

    def open(self, model: str, sequences: int, positions: int) -> dict[str, Any]:
        """Open a model and compute a first token; what that took is told."""
        before = _memory()
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forgets the peak
        start = time.perf_counter()
        room = Room(sequences, positions)
        self._opened = self._module.open(Path(model), self._settings, room)
        self._opened.prompt(FIRST_PROMPT)
        seconds, after = time.perf_counter() - start, _memory()
        return {
            "seconds": seconds,
            "resident": after["VmRSS"] - before["VmRSS"],
            "peak": after["VmHWM"] - before["VmRSS"],
            "mapped": after["RssFile"] - before["RssFile"],
        }

    def decode(self, sequences: int, context: int, new: int) -> dict[str, Any]:
        """Decode, and return the seconds of a step."""
        return {"seconds": self._opened.decode(sequences, context, new)}

    def prompt(self, length: int, sequences: int = 1) -> dict[str, Any]:
        """Read one prompt or several at once, and return the seconds."""
        if sequences > 1:
            return {"seconds": self._opened.prompts(sequences, length)}
        return {"seconds": self._opened.prompt(length)}


def _memory() -> dict[str, int]:
    """Return in bytes what the process has in memory: now, at its peak, and of mapped files."""
    found = re.findall(
        r"^((?:Vm|Rss)\w+):\s+(\d+) kB", STATUS.read_text(encoding="utf-8"), re.MULTILINE
    )
    return {name: 1024 * int(kibibytes) for name, kibibytes in found}


if __name__ == "__main__":
    main()
