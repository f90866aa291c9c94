"""Answers on their way: their requests wait for room in a kernel, take steps and are removed."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from functools import partial
from operator import setitem
from typing import TYPE_CHECKING, Any

from tensor_ops_decode.errors import LogitsError

if TYPE_CHECKING:
    from tensor_ops_decode.completion import Completion
    from tensor_ops_decode.generation.answer import Answer
    from tensor_ops_decode.kernel.persistent_kernel import PersistentKernel

__all__ = ["RunningAnswers", "remove_abandoned"]

# For how long steps follow one another before their tokens are looked at: a stream of pieces is
# smooth, other threads wait for no longer, and what Python does after them is little beside it.
_SECONDS_OF_STEPS = 0.03


class RunningAnswers:
    """The answers of one call, each with the arguments of its request.

    The lock is of all answers of the kernel, and so are the numbers of requests that are abandoned:
    who uses the kernel next removes them. Steps follow one another up to `most_steps` times before
    the answers are looked at.
    """

    def __init__(
        self,
        kernel: PersistentKernel,
        lock: threading.RLock,
        abandoned: deque[int],
        requests: Sequence[tuple[Answer, dict[str, Any]]],
        most_steps: int,
    ) -> None:
        self._kernel, self._lock, self._most_steps = kernel, lock, most_steps
        self._abandoned = abandoned
        self._requests = dict(requests)
        self._waiting = deque(requests)
        self._running: dict[Answer, int] = {}  # the number of the request of each
        self._errors: list[tuple[int, LogitsError]] = []

    def advance(self) -> bool:
        """Go on with the answers; return whether any of them has not ended."""
        for answer, tokens, reason in self._step():
            answer.add(tokens, reason)
            if answer.finish_reason is not None:
                self._end(answer)
        return bool(self._waiting or self._running)

    def close(self) -> None:
        """Remove the requests of answers that have not ended."""
        self._waiting.clear()
        try:
            self._remove()
        except KeyboardInterrupt:
            self._remove()
            raise

    def abandon(self) -> None:
        """Let the next use of the kernel do what `close` does, wherever this is called from."""
        self._abandoned.extend(self._running.values())

    def completions(self) -> list[Completion]:
        """Return the answers, all of which have ended.

        Raises
        ------
        LogitsError
            If one of them ended by it.
        """
        completions = [answer.completion() for answer in self._requests]
        if self._errors:
            prompt, error = min(self._errors, key=lambda each: each[0])
            raise LogitsError(f"prompt {prompt}: {error}", error.request, tuple(completions))
        return completions

    def _step(self) -> list[tuple[Answer, list[int], str | None]]:
        """Start what there is room for, run steps, and return how far each request has come.

        The steps serve all threads that generate; each thread reads its own requests.
        """
        kernel, running = self._kernel, self._running
        with self._lock:
            remove_abandoned(kernel, self._abandoned)
            while self._waiting:
                answer, request = self._waiting[0]
                if not kernel.has_room(len(answer.prompt) + request["max_new_tokens"] - 1):
                    break
                note = partial(setitem, running, answer)
                kernel.add_request(answer.prompt, **request, announce=note)
                self._waiting.popleft()
                answer.start()
            active = kernel.requests
            own = not running or not set(running.values()).isdisjoint(active)
            if active and own and not self._has_more():
                with contextlib.suppress(LogitsError):  # each thread finds the errors of its own
                    kernel.run(self._most_steps, max_seconds=_SECONDS_OF_STEPS)
            return [(a, kernel.tokens(n), kernel.finish_reason(n)) for a, n in running.items()]

    def _has_more(self) -> bool:
        """Return whether steps of another thread have brought tokens that are not looked at yet."""
        kernel = self._kernel
        return any(
            len(kernel.tokens(number)) > len(answer.tokens)
            for answer, number in self._running.items()
        )

    def _end(self, answer: Answer) -> None:
        kernel, number = self._kernel, self._running[answer]
        answer.accepted_tokens = kernel.num_accepted(number)
        answer.shared_tokens = kernel.num_shared(number)
        if self._requests[answer]["logprobs"] is not None:
            answer.logprobs = tuple(kernel.logprobs(number)[: len(answer.tokens)])
        if (error := kernel.error(number)) is not None:
            self._errors.append((answer.number, error))
        kernel.remove(number)
        del self._running[answer]

    def _remove(self) -> None:
        # Ctrl-C may have come just before one of them was added, or after it was removed.
        for number in self._running.values():
            with contextlib.suppress(ValueError):  # a closed kernel has no requests
                self._kernel.remove(number, missing_ok=True)


def remove_abandoned(kernel: PersistentKernel, abandoned: deque[int]) -> None:
    """Remove the requests of answers that nobody waits for; the caller holds the lock.

    An interrupt loses none of them.
    """
    while abandoned:
        kernel.remove(abandoned[0], missing_ok=True)
        abandoned.popleft()
