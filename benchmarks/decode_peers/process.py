"""An engine's process, seen from the driver: it is stopped while another has its turn."""

import json
import signal
import sys
from typing import Any

from decode_peers.cases import Engine
from harness.process import WorkerLostError, WorkerProcess

__all__ = ["EngineProcess"]

SECONDS = 600.0  # some compile for minutes


class EngineProcess(WorkerProcess):
    """One process; a context manager.

    Parameters
    ----------
    engine : Engine
    python : str
        The interpreter that has its library.
    """

    def __init__(self, engine: Engine, python: str = sys.executable) -> None:
        self.engine = engine
        settings = json.dumps({"threads": engine.threads, **engine.settings})
        # Ctrl-C is for the driver, which ends the others. Should it be killed, the system lets
        # stopped groups of its session run on, and they find their input closed.
        self.start(
            "decode_peers.worker",
            (engine.module, settings),
            engine.threads,
            python,
            process_group=0,
        )

    def close(self) -> None:
        """End the process, which may be stopped."""
        self.process.kill()
        super().close()

    def ask(self, what: str, **arguments: Any) -> dict[str, Any]:
        """Let the process run until it has answered.

        A process that is gone, or that does not answer, is a failure that says so.
        """
        try:
            self.process.send_signal(signal.SIGCONT)
            self.send({"ask": what, **arguments})
            return self.answer(SECONDS)
        except WorkerLostError as reason:
            return {"failure": str(reason)}
        finally:
            self.process.send_signal(signal.SIGSTOP)
