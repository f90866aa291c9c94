"""An engine's process, seen from the driver: it is stopped while another has its turn."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from types import TracebackType
from typing import Any

from comparison.process import BENCHMARKS, KEPT_BETWEEN_RUNS, last_words
from decode_peers.cases import Engine

__all__ = ["EngineProcess"]

SECONDS = 600.0  # some compile for minutes


class EngineProcess:
    """One process; a context manager.

    Parameters
    ----------
    engine : Engine
    python : str
        The interpreter that has its library.
    """

    def __init__(self, engine: Engine, python: str = sys.executable) -> None:
        self.engine = engine
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by __exit__)
        self._rest = b""
        settings = json.dumps({"threads": engine.threads, **engine.settings})
        words = [python, "-m", "decode_peers.worker", engine.module, settings]
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=_environment(engine.threads),
            # Ctrl-C is for the driver, which ends the others. Should it be killed, the system lets
            # stopped groups of its session run on, and they find their input closed.
            process_group=0,
        )

    def __enter__(self) -> "EngineProcess":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                if stream:
                    stream.close()
        self.process.wait()
        self._errors.close()

    def ask(self, what: str, **arguments: Any) -> dict[str, Any]:
        """Let the process run until it has answered.

        A process that is gone, or that does not answer, is a failure that says so.
        """
        stdin = self.process.stdin
        assert stdin
        try:
            self.process.send_signal(signal.SIGCONT)
            stdin.write(json.dumps({"ask": what, **arguments}).encode() + b"\n")
            stdin.flush()
            return self._answer()
        except BrokenPipeError:
            return {"failure": last_words(self.process, self._errors)}
        finally:
            self.process.send_signal(signal.SIGSTOP)

    def _answer(self) -> dict[str, Any]:
        stdout = self.process.stdout
        assert stdout
        end = time.monotonic() + SECONDS
        while b"\n" not in self._rest:
            ready, _, _ = select.select([stdout], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                self.process.kill()
                return {"failure": f"silent for {SECONDS:.0f} s"}
            received = os.read(stdout.fileno(), 2**16)
            if not received:
                return {"failure": last_words(self.process, self._errors)}
            self._rest += received
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _environment(threads: int) -> dict[str, str]:
    counts = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return {
        **os.environ,
        **dict.fromkeys(counts, str(threads)),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(BENCHMARKS), os.getenv("PYTHONPATH")])),
        "HF_HUB_OFFLINE": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(KEPT_BETWEEN_RUNS / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
