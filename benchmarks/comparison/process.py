"""A peer's process, seen from the driver."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

__all__ = ["PeerProcess", "WorkerLostError", "last_words"]

BENCHMARKS = Path(__file__).parents[1]
SECONDS_TO_START = 120.0
KEPT_BETWEEN_RUNS = BENCHMARKS.parent / ".benchmarks"


class WorkerLostError(Exception):
    """The process died or does not answer; the message says which."""


class PeerProcess:
    """The worker of one peer, with a number of threads; a context manager.

    Attributes
    ----------
    name : str
    label : str
        What tables call the peer.
    versions : dict
        Of the distributions that its times belong to.
    absent : str or None
        Why there is no worker: the import that failed.
    """

    def __init__(self, name: str, threads: int, limit: float = 120.0) -> None:
        self.name = name
        self.label = name
        self.versions: dict[str, str] = {}
        self.absent: str | None = None
        self._threads = threads
        self._limit = limit
        self._rest = b""
        self._start()

    def __enter__(self) -> "PeerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the worker's answer; raise `WorkerLostError` if there is none."""
        stdin = self.process.stdin
        assert stdin
        try:
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            raise WorkerLostError(last_words(self.process, self._errors)) from None
        return self._answer(self._limit)

    def restart(self) -> None:
        """Take a new process in the place of one that is gone."""
        self.close()
        self._start()

    def close(self) -> None:
        """End the process, by force if it does not go."""
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):  # it may be gone already
                if stream:
                    stream.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._errors.close()

    def _start(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
        self._rest = b""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "comparison.worker", self.name, str(self._threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=_environment(self._threads),
            start_new_session=True,  # Ctrl-C is for the driver, which ends the others
        )
        try:
            hello = self._answer(SECONDS_TO_START)
        except WorkerLostError as reason:
            hello = {"absent": str(reason)}
        self.absent = hello.get("absent")
        self.label = hello.get("label", self.name)
        self.versions = hello.get("versions", {})

    def _answer(self, limit: float) -> dict[str, Any]:
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
                raise WorkerLostError(last_words(self.process, self._errors))
            self._rest += received
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer


def last_words(process: subprocess.Popen[bytes], errors: IO[bytes]) -> str:
    """Return how a process has ended, and the last line that it wrote to this file."""
    code = process.wait()
    errors.seek(0)
    lines = errors.read().decode(errors="replace").splitlines()
    said = next((line for line in reversed(lines) if line.strip()), "nothing on stderr")
    how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
    return f"the process ended with {how}: {said.strip()[:200]}"


def _environment(threads: int) -> dict[str, str]:
    """Return the variables of a worker.

    How threads wait is left as each library has it: a worker answers only when they rest, so the
    fastest setting of one cannot slow down another.
    """
    counts = (
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "NUMBA_NUM_THREADS",
        "NUMEXPR_MAX_THREADS",
    )
    return {
        **os.environ,
        **dict.fromkeys(counts, str(threads)),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(BENCHMARKS), os.getenv("PYTHONPATH")])),
        "TORCHINDUCTOR_CACHE_DIR": str(KEPT_BETWEEN_RUNS / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
