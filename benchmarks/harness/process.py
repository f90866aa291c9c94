"""A process that answers requests, seen from the driver: a line of JSON in, a line of JSON out."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

__all__ = ["BENCHMARKS", "WorkerLostError", "WorkerProcess", "environment"]

BENCHMARKS = Path(__file__).parents[1]
KEPT_BETWEEN_RUNS = BENCHMARKS.parent / ".benchmarks"
SECONDS_TO_END = 5.0


class WorkerLostError(Exception):
    """The process died or does not answer; the message says which."""


class WorkerProcess:
    """A process that answers by `harness.worker.answer_all`; a context manager."""

    def start(
        self,
        module: str,
        arguments: Sequence[str],
        threads: int,
        python: str = sys.executable,
        **options: Any,
    ) -> None:
        """Start a module by the interpreter that has its library; options are those of `Popen`."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
        self._rest = b""
        self.process = subprocess.Popen(
            [python, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment(threads),
            **options,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, request: dict[str, Any]) -> None:
        """Ask for something; raise `WorkerLostError` if nobody hears it."""
        stdin = self.process.stdin
        assert stdin
        try:
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            raise WorkerLostError(self._last_words()) from None

    def answer(self, limit: float) -> dict[str, Any]:
        """Return the next answer; raise `WorkerLostError` if there is none within some seconds."""
        stdout = self.process.stdout
        assert stdout
        end = time.monotonic() + limit
        while b"\n" not in self._rest:
            ready, _, _ = select.select([stdout], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                self.process.kill()
                raise WorkerLostError(f"no answer within {limit:.0f} s")
            received = os.read(stdout.fileno(), 2**16)
            if not received:
                raise WorkerLostError(self._last_words())
            self._rest += received
        line, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """End the process, by force if it does not go."""
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):  # it may be gone already
                if stream:
                    stream.close()
        try:
            self.process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._errors.close()

    def _last_words(self) -> str:
        """Return how the process has ended, and the last line that it wrote to stderr."""
        code = self.process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").splitlines()
        said = next((line for line in reversed(lines) if line.strip()), "nothing on stderr")
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return f"the process ended with {how}: {said.strip()[:200]}"


def environment(threads: int | None = None) -> dict[str, str]:
    """Return the variables of a process that finds what is in this folder, and of its threads.

    How threads wait is left as each library has it: a worker answers only when they rest, so the
    fastest setting of one cannot slow down another.
    """
    libraries = ("OMP_NUM", "MKL_NUM", "OPENBLAS_NUM", "NUMBA_NUM", "NUMEXPR_MAX")
    counts = {f"{each}_THREADS": str(threads) for each in libraries if threads is not None}
    return {
        **os.environ,
        **counts,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(BENCHMARKS), os.getenv("PYTHONPATH")])),
        "HF_HUB_OFFLINE": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(KEPT_BETWEEN_RUNS / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
