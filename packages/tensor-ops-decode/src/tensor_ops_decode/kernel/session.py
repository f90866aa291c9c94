"""What runs in a kernel: its requests and its executable, which one thread at a time uses."""

import math
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tensor_ops import BackendError
from tensor_ops_decode.arguments import check_seconds, whole
from tensor_ops_decode.completion import TokenLogprob
from tensor_ops_decode.errors import CapacityError, LogitsError, ProgramError
from tensor_ops_decode.kernel.export import ModelFacts
from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.program import Program
from tensor_ops_decode.ranks.communicator import Communicator
from tensor_ops_decode.serving.request import checked_request
from tensor_ops_decode.serving.requests import Requests, last_of_each
from tensor_ops_decode.serving.sampling import Sampling
from tensor_ops_decode.serving.step_times import StepProfile

__all__ = ["Session"]

# What one call of the executable takes at most, if its steps take no longer than those before: a
# signal waits for its end, and so do other threads. Its pages are held beforehand.
_MOST_SECONDS = 0.05
_MOST_STEPS = 32


class Session:
    """The requests of a kernel, which run once the session has started, on all ranks alike.

    Most methods are methods of the kernel too, with the same docstring.

    Attributes
    ----------
    executable : executable or None
        None before the start, and once the session is closed.
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

    @property
    def active(self) -> tuple[int, ...]:
        """The active requests, in the order in which they were added."""
        with self._in_use() as requests:
            return requests.active

    def add_request(
        self,
        /,
        tokens: Sequence[int],
        *,
        max_new_tokens: int | None = None,
        ignore_eos: bool = False,
        logprobs: int | None = None,
        **sampling: Any,
    ) -> int:
        """Add a request, which the next call takes up.

        Parameters
        ----------
        tokens : sequence of int
            The prompt.
        max_new_tokens : int, optional
            The request ends when it has generated so many. Without it, it goes on to an end token.
        ignore_eos : bool, optional
            Whether it goes on after an end token.
        logprobs : int, optional
            How many of the likeliest tokens `logprobs` is to give beside each that is generated.
        **sampling
            ``temperature``, ``top_k``, ``top_p``, ``min_p``, ``seed``, ``repetition_penalty`` and
            ``logit_bias``, as in `Sampling`; without them, the most probable token is taken.

        Returns
        -------
        int
            What the request is called by in the other methods.

        Raises
        ------
        TypeError, ValueError
            If the prompt is empty, too long or has no tokens of the model, or there are as many
            active requests as the kernel takes.
        """
        with self._in_use() as requests:
            prompt, how = checked_request(self._program, tokens, max_new_tokens, sampling)
            end_tokens = frozenset[int]() if ignore_eos else self._facts.end_tokens
            count = None if logprobs is None else whole("logprobs", logprobs, 0)
            return requests.add(prompt, end_tokens, max_new_tokens, how, count)

    def check_request(
        self,
        /,
        tokens: Sequence[int],
        *,
        max_new_tokens: int | None = None,
        ignore_eos: bool = False,
        logprobs: int | None = None,
        **sampling: Any,
    ) -> None:
        """Raise the error that `add_request` would, unless it is that no more may be added now."""
        with self._in_use():
            checked_request(self._program, tokens, max_new_tokens, sampling)
            if logprobs is not None:
                whole("logprobs", logprobs, 0)

    def has_room(self, length: int) -> bool:
        """Return whether a request may be added now, and come to so many tokens.

        Its prompt is among them. It is assumed that the active requests go on as far as they may.
        """
        with self._in_use() as requests:
            return requests.has_room(whole("length", length))

    def tokens(self, request: int) -> list[int]:
        """Return what a request has generated, an end token included."""
        with self._in_use() as requests:
            return requests.find(request).generated

    def finish_reason(self, request: int) -> str | None:
        """Return ``"stop"`` or ``"length"`` for a request that has ended, None if it is active.

        It is ``"error"`` where the logits chose no token; see `error`.
        """
        with self._in_use() as requests:
            return requests.find(request).finish_reason

    def error(self, request: int) -> LogitsError | None:
        """Return the error that has ended a request, which a call has raised; else None."""
        with self._in_use() as requests:
            return requests.find(request).error

    def logits(self, request: int) -> Array:
        """Return the logits of the token that the last call chose for a request, in float32."""
        with self._in_use() as requests:
            return requests.logits(request)

    def num_shared(self, request: int) -> int:
        """Return how many tokens of a request others had brought into the caches."""
        with self._in_use() as requests:
            return requests.find(request).num_shared

    def num_accepted(self, request: int) -> int:
        """Return how many tokens of a request had been guessed; see ``num_speculative_tokens``."""
        with self._in_use() as requests:
            return requests.find(request).num_accepted

    def logprobs(self, request: int) -> list[TokenLogprob]:
        """Return how likely each token was that a request has generated.

        The probabilities are the model's own, before biases, penalties, the temperature and cuts.

        Raises
        ------
        ValueError
            If the request was added without ``logprobs``.
        """
        with self._in_use() as requests:
            found = requests.find(request)
            if found.num_likeliest is None:
                raise ValueError(f"request {request} has none: give logprobs= to add_request()")
            return found.logprobs.copy()

    def remove(self, request: int) -> None:
        """Forget a request, active or ended, and take back its pages."""
        with self._in_use() as requests:
            requests.remove(request)

    def reset(self) -> None:
        """Forget all requests."""
        with self._in_use() as requests:
            requests.clear()

    def __call__(self) -> dict[int, int]:
        """Run one step of every active request.

        Each goes on by one token, which is also its next input; by several where guesses of
        ``num_speculative_tokens`` were right. A prompt longer than a step takes
        several, beside the tokens of the others. If no request was added, a default one runs, which
        has one start token and ignores end tokens.

        Returns
        -------
        dict of int to int
            The token of each request that has got one; of several, the last.

        Raises
        ------
        CapacityError
            If a request has come to the longest sequence, or no page is left; nothing was written.
        LogitsError
            If the logits of a request are NaN, or all minus infinity. It has ended then, and the
            others go on: their tokens are in `tokens`.
        RuntimeError
            If no request is active, or the kernel is not compiled.
        """
        with self._in_step() as requests:
            _, tokens = requests.run(1, math.inf)
            return last_of_each(tokens)

    def run(self, num_steps: int, *, max_seconds: float = math.inf) -> dict[int, list[int]]:
        """Run several steps of every active request, until one of them ends.

        They are the steps of as many calls, with the same results. Where a step depends on nothing
        but the tokens that were chosen before, the executor goes on to it by itself, which takes
        less time. Requests with ``logprobs`` or ``repetition_penalty``, and a kernel with
        ``num_speculative_tokens``, go on from step to step through Python.

        Parameters
        ----------
        num_steps : int
            The most steps: there are fewer where a request ends, or where there is no room for the
            next one, for which the next call raises.
        max_seconds : float, optional
            No step but the first begins that would end later, if it took as long as those before.

        Returns
        -------
        dict of int to list of int
            The tokens of each request that has got some.

        Raises
        ------
        CapacityError, RuntimeError
            As of a call, for the first step.
        LogitsError
            As of a call, for any step.

        Examples
        --------
        >>> import tensor_ops
        >>> with tensor_ops.PersistentKernel(backend="python") as kernel:
        ...     kernel.compile()
        ...     request = kernel.add_request([1, 2, 3], max_new_tokens=5)
        ...     while kernel.requests:
        ...         tokens = kernel.run(4)[request]
        ...         print(len(tokens))
        4
        1
        """
        check_seconds("max_seconds", max_seconds)
        start, left, done = time.perf_counter(), whole("num_steps", num_steps), 0
        tokens: dict[int, list[int]] = {}
        seconds = max_seconds
        while left:
            with self._in_step() as requests:
                before = requests.active
                if done and not before:  # another thread has removed them
                    break
                try:
                    most = min(left, _MOST_STEPS)
                    steps, chosen = requests.run(most, min(seconds, _MOST_SECONDS))
                except CapacityError:
                    if done:
                        break
                    raise
                has_ended = len(requests.active) < len(before)
            for number, new in chosen.items():
                tokens.setdefault(number, []).extend(new)
            left, done = left - steps, done + steps
            seconds = max_seconds - (time.perf_counter() - start)
            is_late = (max_seconds - seconds) / done > seconds
            if has_ended or not self._ranks.least(not is_late):  # whose clocks are others
                break
        return tokens

    def synchronize(self) -> None:
        """Wait for the step that another thread runs; one's own has ended when its call returns."""
        with self._in_use():
            pass

    def profile(self) -> StepProfile:
        """Run one step as a call does, and measure how long each node takes.

        Returns
        -------
        StepProfile

        Raises
        ------
        CapacityError, RuntimeError
            As of a call.
        BackendError
            If the backend's executor cannot measure.

        Examples
        --------
        >>> import tensor_ops
        >>> with tensor_ops.PersistentKernel(backend="python") as kernel:
        ...     kernel.compile()
        ...     times = kernel.profile()
        ...     times.work.shape == (1, len(kernel.program.nodes))
        True
        """
        with self._in_use():
            self._require("profile")
            with self._in_step() as requests:
                return requests.profile()

    def read_bandwidth(self) -> float:
        """Return the bytes per second at which the threads read the weights, without computing.

        It bounds what decoding can reach: a step reads all weights, whatever it computes.

        Raises
        ------
        BackendError
            If the backend's executor cannot measure.

        Examples
        --------
        >>> import tensor_ops
        >>> with tensor_ops.PersistentKernel(backend="python") as kernel:
        ...     kernel.compile()
        ...     kernel.read_bandwidth() > 0
        True
        """
        with self._in_use():
            self._require("read_bandwidth")
            bandwidth: float = self.executable.read_bandwidth()
            return bandwidth

    def _require(self, method: str) -> None:
        """Raise a BackendError unless the executable has an optional method."""
        if not hasattr(self.executable, method):
            raise BackendError(
                f"the executor of backend {self._backend!r} has no {method}(); measure with "
                "backend='cpp' or 'python'"
            )
