"""Who may use a kernel's executable: one thread at a time, in the process that made the kernel."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tensor_ops_decode.errors import ProgramError
from tensor_ops_decode.kernel.export import ModelFacts
from tensor_ops_decode.program import Program
from tensor_ops_decode.ranks.communicator import Communicator
from tensor_ops_decode.serving.requests import Requests
from tensor_ops_decode.serving.sampling import Sampling

__all__ = ["ExclusiveUse"]


class ExclusiveUse:
    """An executable and its requests, from the start until they are closed.

    Attributes
    ----------
    executable : executable or None
        None before the start, and once it is closed.
    """

    _program: Program
    _facts: ModelFacts
    _backend: str

    def __init__(self, ranks: Communicator) -> None:
        self._ranks = ranks
        self._lock = threading.RLock()
        self._process, self._is_closed = os.getpid(), False
        self.executable: Any = None
        self._requests: Requests | None = None

    def start(self, program: Program, facts: ModelFacts, executable: Any, backend: str) -> None:
        """Let requests run on what a backend has made of a program."""
        self._program, self._facts, self._backend = program, facts, backend
        self._requests = Requests(program, executable, facts.logits, facts.tokens, self._ranks)
        self.executable = executable

    def close(self) -> None:
        """Free the memory; everything after that is an error, except for closing again."""
        if self._process != os.getpid():  # where the lock may be held by a thread that is gone
            self.executable, self._is_closed = None, True
            return
        with self._lock:
            executable, self.executable, self._is_closed = self.executable, None, True
            if executable is not None:
                executable.close()
            self._ranks.close()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock, in the process that made the kernel and before it is closed."""
        self._check()  # first: in a forked process, a thread that is gone may hold the lock
        with self._lock:
            self._check()  # another thread may have closed the kernel
            yield

    def check_describing(self, where: str) -> None:
        """Raise an error if the program cannot change any more."""
        self._check()
        if self.executable is not None:
            raise ProgramError(f"{where}: the kernel is compiled already")

    @contextmanager
    def _in_use(self) -> Iterator[Requests]:
        """Hold the lock and give the requests, if they can run."""
        with self.held():
            if self._requests is None:
                raise RuntimeError("the kernel is not compiled: call compile() first")
            yield self._requests

    @contextmanager
    def _in_step(self) -> Iterator[Requests]:
        """Hold the lock and give the requests, with the default one if none was added."""
        with self._in_use() as requests:
            if not requests.were_added:
                requests.add([self._facts.start_token], frozenset(), None, Sampling())
            yield requests

    def _check(self) -> None:
        if self._process != os.getpid():
            raise RuntimeError(
                f"the kernel belongs to the process {self._process}, from which this one was "
                "forked; make a kernel of its own here"
            )
        if self._is_closed:
            raise ValueError("the kernel is closed; make a new one")
