"""The session of a kernel: its requests and its executable, used by one thread at a time."""

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tensor_ops import BackendError
from tensor_ops_decode.arguments import check_seconds, whole
from tensor_ops_decode.completion import TokenLogprob
from tensor_ops_decode.errors import CapacityError, LogitsError, ProgramError
from tensor_ops_decode.executors.choice import Executor
from tensor_ops_decode.kernel.opening import KernelModel
from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.program import Program
from tensor_ops_decode.ranks.communicator import Communicator
from tensor_ops_decode.scheduling.constraint import TokenConstraint
from tensor_ops_decode.scheduling.embedding_requests import EmbeddingRequests
from tensor_ops_decode.scheduling.request import (
    Request,
    check_lengths,
    checked_request,
    checked_tokens,
)
from tensor_ops_decode.scheduling.requests import last_of_each
from tensor_ops_decode.scheduling.sampling import Sampling
from tensor_ops_decode.scheduling.step_times import StepProfile

__all__ = ["Session"]

# Bounds of one call of the executable, if its steps take no longer than those before: a signal
# waits for its end, and so do other threads. Its pages are held beforehand.
_MOST_SECONDS = 0.05
_MOST_STEPS = 32


class Session:
    """The requests of a kernel, and their executable, from its start until they are closed.

    All ranks run them alike.
    """

    _executor: Executor
    _model: KernelModel | None

    def __init__(self, ranks: Communicator) -> None:
        self._ranks = ranks
        self._lock = threading.RLock()
        self._process, self._is_closed = os.getpid(), False
        # None before the start, and once it is closed.
        self._executable: Any = None
        self._requests: EmbeddingRequests | None = None

    def _start(self, executable: Any) -> None:
        """Let requests run on the executable of the program."""
        facts = self._known_model().facts
        given = self.program, executable, facts.logits, facts.tokens, self._ranks
        self._requests = EmbeddingRequests(*given)
        self._executable = executable

    def close(self) -> None:
        """Free the memory; everything after that is an error, except for closing again."""
        if self._process != os.getpid():  # where the lock may be held by a thread that is gone
            self._executable, self._is_closed = None, True
            return
        with self._lock:
            executable, self._executable, self._is_closed = self._executable, None, True
            if executable is not None:
                executable.close()
            self._ranks.close()

    @property
    def program(self) -> Program:
        """The program that runs, as a plain value; of layers by hand, once they are compiled."""
        return self._known_model().planned.program

    def _known_model(self) -> KernelModel:
        if self._model is None:
            raise RuntimeError("the program is known once compile() has been called")
        return self._model

    @property
    def backend(self) -> str:
        """The backend that runs the kernel."""
        return self._executor.backend

    @property
    def end_tokens(self) -> frozenset[int]:
        """The tokens that end a request which does not name others."""
        return self._known_model().facts.end_tokens

    @property
    def world_size(self) -> int:
        """How many ranks share the model."""
        return self._ranks.world_size

    @property
    def mpi_rank(self) -> int:
        """Which of them this one is."""
        return self._ranks.rank

    @property
    def requests(self) -> tuple[int, ...]:
        """The active requests, in the order in which they were added."""
        with self._in_use() as requests:
            return requests.active

    @property
    def waiting(self) -> tuple[int, ...]:
        """The active requests that wait for `extend`, in the order in which they were added."""
        with self._in_use() as requests:
            return requests.waiting

    def add_request(
        self,
        /,
        tokens: Sequence[int],
        *,
        max_new_tokens: int | None = None,
        ignore_eos: bool = False,
        end_tokens: Sequence[int] | None = None,
        logprobs: int | None = None,
        choose: bool = True,
        constraint: TokenConstraint | None = None,
        announce: Callable[[int], object] | None = None,
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
        end_tokens : sequence of int, optional
            What ends it instead of the kernel's own end tokens.
        logprobs : int, optional
            How many of the likeliest tokens `logprobs` is to give beside each that is generated.
        choose : bool, optional
            Whether the kernel chooses its tokens. Otherwise a call leaves the logits of the next
            token, and the request waits until `extend` gives it one.
        constraint : TokenConstraint, optional
            Which tokens may be chosen: an object with the methods ``allows``, ``allowed``,
            ``is_complete``, ``forced`` and ``problem``, which no other request has.
        announce : callable, optional
            Called with the number of the request before the request is added, so that the caller
            can remove it even where Ctrl-C comes before the return.
        **sampling
            The attributes of `Sampling`, such as ``temperature``; without them, the most probable
            token is taken.

        Returns
        -------
        int
            The number of the request, for the other methods.

        Raises
        ------
        TypeError, ValueError
            If the prompt is empty, too long or has no tokens of the model, or there are as many
            active requests as the kernel takes; if ``choose=False`` comes with ``logprobs``,
            ``constraint`` or settings of sampling, which are about tokens that the kernel chooses.
        """
        with self._in_use() as requests:
            given = max_new_tokens, ignore_eos, end_tokens, logprobs, choose, constraint
            return requests.add(self._request(tokens, *given, **sampling), announce)

    def check_request(self, /, tokens: Sequence[int], **settings: Any) -> None:
        """Raise the error that `add_request` would, unless it is that no more may be added now."""
        settings.pop("announce", None)
        self._check_runs()  # without the lock: a step that runs holds up no check
        self._request(tokens, **settings)

    def extend(self, request: int, tokens: Sequence[int]) -> None:
        """Give a request of ``choose=False`` its next tokens, for which it waits.

        Several are fed in one step, and the logits are those after the last. The request ends if
        that is an end token, or if it has come to its limit.

        Raises
        ------
        TypeError, ValueError
            If there are no tokens, or others than the model's, or more than the request may have;
            or if it does not wait for tokens.

        Examples
        --------
        >>> import tensor_ops
        >>> with tensor_ops.PersistentKernel(backend="python") as kernel:
        ...     kernel.compile()
        ...     request = kernel.add_request([1, 2, 3], choose=False)
        ...     nothing = kernel()
        ...     kernel.extend(request, [int(kernel.logits(request).argmax())])
        ...     nothing, len(kernel.tokens(request))
        ({}, 1)
        """
        with self._in_use() as requests:
            new = checked_tokens(self.program, tokens, "what is to follow")
            requests.find(request).extend(new, self.program.limits.longest)

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
        """Return the logits of the token that the last call chose for a request, in float32.

        Of a request with ``choose=False``, they are those of the token that it waits for.
        """
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

    def prompt_logprobs(self, tokens: Sequence[int], *, first: int = 1) -> list[float]:
        """Return the log-probability of each token of a sequence, given those before it.

        Requests take no step meanwhile. A step has as many of these tokens as
        ``max_num_batched_requests``, and no more, since each needs its logits.

        Parameters
        ----------
        tokens : sequence of int
        first : int, optional
            From which token on; 1 is the second one, and the first there is one of.

        Returns
        -------
        list of float
            One for each token from `first` on.

        Raises
        ------
        TypeError, ValueError
            If there are no tokens, others than the model's, or too many; or as many active requests
            as the kernel takes.
        LogitsError
            If logits are NaN.

        Examples
        --------
        >>> import tensor_ops
        >>> with tensor_ops.PersistentKernel(backend="python") as kernel:
        ...     kernel.compile()
        ...     len(kernel.prompt_logprobs([1, 2, 3]))
        2
        """
        with self._in_use() as requests:
            self._check_head()
            given = checked_tokens(self.program, tokens, "the prompt")
            check_lengths(self.program, len(given), None)
            return requests.prompt_logprobs(given, whole("first", first))

    def remove(self, request: int, *, missing_ok: bool = False) -> None:
        """Forget a request, active or ended, and take back its pages.

        That there is none is an error, unless `missing_ok` is true.
        """
        with self._in_use() as requests:
            requests.remove(request, missing_ok)

    def reset(self) -> None:
        """Forget all requests."""
        with self._in_use() as requests:
            requests.clear()

    def __call__(self) -> dict[int, int]:
        """Run one step of every active request.

        Each goes on by one token, which is also its next input; by several where guesses of
        ``num_speculative_tokens`` were right. A prompt longer than a step takes several, beside the
        tokens of the others. A request with ``choose=False`` gets logits instead, and has no part
        in later steps until `extend` gives it a token. If no request was added, a default one runs,
        which has one start token and ignores end tokens.

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
            If no request is active, or all wait for `extend`; or the kernel is not compiled.
        """
        with self._in_step() as requests:
            _, tokens = requests.run(1, math.inf)
            return last_of_each(tokens)

    def run(self, num_steps: int, *, max_seconds: float = math.inf) -> dict[int, list[int]]:
        """Run several steps of every active request, until one ends or all wait for `extend`.

        They are the steps of as many calls, with the same results. Where a step depends on nothing
        but the tokens that were chosen before, the executor goes on to it by itself, which takes
        less time. Requests with ``logprobs``, penalties or ``choose=False``, and a kernel with
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
                after = requests.active
                is_last = len(after) < len(before) or after == requests.waiting
            for number, new in chosen.items():
                tokens.setdefault(number, []).extend(new)
            left, done = left - steps, done + steps
            seconds = max_seconds - (time.perf_counter() - start)
            is_late = (max_seconds - seconds) / done > seconds
            if is_last or not self._ranks.least(not is_late):  # whose clocks are others
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
            bandwidth: float = self._executable.read_bandwidth()
            return bandwidth

    def _request(
        self,
        tokens: Sequence[int],
        max_new_tokens: int | None = None,
        ignore_eos: bool = False,
        end_tokens: Sequence[int] | None = None,
        logprobs: int | None = None,
        choose: bool = True,
        constraint: TokenConstraint | None = None,
        **sampling: Any,
    ) -> Request:
        """Return a request that can be added, or raise an error."""
        for_chosen = {"logprobs": logprobs, "constraint": constraint}
        if not choose and (sampling or any(each is not None for each in for_chosen.values())):
            given = [name for name, each in for_chosen.items() if each is not None]
            names = ", ".join([*given, *sampling])
            raise ValueError(
                f"with choose=False the caller chooses the tokens, by logits(); leave out {names}"
            )
        self._check_head()
        if not isinstance(constraint, (TokenConstraint, type(None))):
            raise TypeError(
                "constraint must have the methods of a TokenConstraint: allows, allowed, "
                f"is_complete, forced and problem; got {constraint!r:.80}"
            )
        count = None if logprobs is None else whole("logprobs", logprobs, 0)
        prompt, how = checked_request(self.program, tokens, max_new_tokens, sampling)
        ends: Iterable[int] = self._known_model().facts.end_tokens
        if end_tokens is not None:
            has_any = np.size(end_tokens)
            ends = checked_tokens(self.program, end_tokens, "end_tokens") if has_any else ()
        ends = frozenset(() if ignore_eos else ends)
        return Request(prompt, ends, max_new_tokens, how, count, choose, constraint)

    def _check_head(self) -> None:
        """Raise a ValueError if the model computes no logits."""
        model = self._known_model()
        if not model.has_head:
            raise ValueError(
                f"{model.name}: the model has no head, so that it gives embeddings and no tokens; "
                "call embed(), or open a model of a class such as Qwen3ForCausalLM"
            )

    def _require(self, method: str) -> None:
        """Raise a BackendError unless the executable has an optional method."""
        if not hasattr(self._executable, method):
            raise BackendError(
                f"the executor of backend {self.backend!r} has no {method}(); measure with "
                "backend='cpp' or 'python'"
            )

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the lock, in the process that made the kernel and before it is closed."""
        self._check_open()  # first: in a forked process, a thread that is gone may hold the lock
        with self._lock:
            self._check_open()  # another thread may have closed the kernel
            yield

    def _check_compilable(self, where: str) -> None:
        """Raise an error if there is an executable already, or no kernel any more."""
        self._check_open()
        if self._executable is not None:
            raise ProgramError(f"{where}: the kernel is compiled already")

    @contextmanager
    def _in_use(self) -> Iterator[EmbeddingRequests]:
        """Hold the lock and give the requests, if they can run."""
        with self._held():
            yield self._check_runs()

    @contextmanager
    def _in_step(self) -> Iterator[EmbeddingRequests]:
        """Hold the lock and give the requests, with the default one if none was added."""
        with self._in_use() as requests:
            if not requests.were_added:
                self._check_head()
                start = self._known_model().facts.start_token
                requests.add(Request([start], frozenset(), None, Sampling()))
            yield requests

    def _check_runs(self) -> EmbeddingRequests:
        """Return the requests, if they can run."""
        self._check_open()
        if self._requests is None:
            raise RuntimeError("the kernel is not compiled: call compile() first")
        return self._requests

    def _check_open(self) -> None:
        if self._process != os.getpid():
            raise RuntimeError(
                f"the kernel belongs to the process {self._process}, from which this one was "
                "forked; make a kernel of its own here"
            )
        if self._is_closed:
            raise ValueError("the kernel is closed; make a new one")
