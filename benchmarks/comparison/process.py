"""A peer's process, seen from the driver."""

from typing import Any

from harness.process import WorkerLostError, WorkerProcess

__all__ = ["PeerProcess"]

SECONDS_TO_START = 120.0


class PeerProcess(WorkerProcess):
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
        self.name, self._threads, self._limit = name, threads, limit
        self._start()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the worker's answer; raise `WorkerLostError` if there is none."""
        self.send(request)
        return self.answer(self._limit)

    def restart(self) -> None:
        """Take a new process in the place of one that is gone."""
        self.close()
        self._start()

    def _start(self) -> None:
        # Ctrl-C is for the driver, which ends the others.
        arguments = (self.name, str(self._threads))
        self.start("comparison.worker", arguments, self._threads, start_new_session=True)
        try:
            hello = self.answer(SECONDS_TO_START)
        except WorkerLostError as reason:
            hello = {"absent": str(reason)}
        self.absent: str | None = hello.get("absent")
        self.label: str = hello.get("label", self.name)
        self.versions: dict[str, str] = hello.get("versions", {})
