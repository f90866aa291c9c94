"""Jobs of one process or of several ranks, which take turns on the same machine."""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.process import environment
from rank_runs.worker import written

__all__ = ["Job"]

_SECONDS = 600.0  # in which a job is ready, or has answered
_POLL = 0.003


class Job:
    """Processes that wait for turns; a context manager.

    Parameters
    ----------
    launcher : sequence of str
        The command that starts the ranks, such as ``("mpiexec", "-n", "2")``; empty for one
        process.
    ranks : int
        How many it starts.
    threads : int
        Of each of them.
    kinds : sequence of str
        What it can run; see `rank_runs.worker`.
    backend : str, optional
    """

    def __init__(
        self,
        launcher: Sequence[str],
        ranks: int,
        threads: int,
        kinds: Sequence[str],
        backend: str = "cpp",
    ) -> None:
        self.kinds, self._ranks, self._turns = list(kinds), ranks, 0
        self._folder = tempfile.TemporaryDirectory(prefix="ranks-")
        self.place = Path(self._folder.name)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by __exit__)
        arguments = [str(self.place), str(threads), backend, *kinds]
        self.process = subprocess.Popen(
            [*launcher, sys.executable, "-m", "rank_runs.worker", *arguments],
            stdout=self._errors,
            stderr=self._errors,
            env=environment(),
        )

    def __enter__(self) -> "Job":
        try:
            self._wait(lambda: len([*self.place.glob("ready.*")]) >= self._ranks)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def turn(self, kind: str, steps: int) -> dict[str, Any]:
        """Run steps of a kind, and return what rank 0 says of them.

        Raises
        ------
        RuntimeError
            If a process has ended, with its last words, or does not answer.
        """
        asked = {"kind": self.kinds.index(kind), "steps": steps}
        answer = self.place / f"{self._turns}.answer.json"
        written(self.place / f"{self._turns}.json", json.dumps(asked))
        self._turns += 1
        self._wait(answer.exists)
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        return found

    def close(self) -> None:
        """End the processes."""
        written(self.place / "end", "")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._errors.close()
        self._folder.cleanup()

    def _wait(self, is_done: Any) -> None:
        end = time.monotonic() + _SECONDS
        while not is_done():
            if self.process.poll() is not None:
                self._errors.seek(0)
                words = self._errors.read().decode(errors="replace").strip()
                raise RuntimeError(
                    f"a job has ended with {self.process.returncode}: {words[-2000:]}"
                )
            if time.monotonic() > end:
                raise RuntimeError(f"a job has been silent for {_SECONDS:.0f} s")
            time.sleep(_POLL)
