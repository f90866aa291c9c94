"""Answers on their way: their requests wait for room in a kernel, take steps and are removed."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from functools import partial
from operator import setitem
from typing import TYPE_CHECKING

from tensor_ops_decode.errors import LogitsError

if TYPE_CHECKING:
    from tensor_ops_decode.completion import Completion
    from tensor_ops_decode.generation.answer import Answer
    from tensor_ops_decode.kernel.persistent_kernel import PersistentKernel

__all__ = ["RunningAnswers", "completions_of", "remove_abandoned"]

# For how long steps follow one another before their tokens are looked at: a stream of pieces is
# smooth, other threads wait for no longer, and what Python does after them is little beside it.
_SECONDS_OF_STEPS = 0.03
_MOST_STEPS = 1 << 16


class RunningAnswers:
    """Answers that wait for room in a kernel, or take steps; they join and leave between steps.

    The lock is of all answers of the kernel, and so are the numbers of requests that are abandoned:
    who uses the kernel next removes them. No answer that waits is begun while `is_held`, so that
    there comes to be room for something else.
    """

    def __init__(
        self,
        kernel: PersistentKernel,
        lock: threading.RLock,
        abandoned: deque[int],
        answers: Sequence[Answer] = (),
    ) -> None:
        self._kernel, self._lock = kernel, lock
        self._abandoned = abandoned
        self._waiting = deque(answers)
        self.is_held = False
        self._running: dict[Answer, int] = {}  # the number of the request of each

    @property
    def num_waiting(self) -> int:
        """How many answers no step has begun."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """How many answers take steps."""
        return len(self._running)

    def add(self, answer: Answer) -> None:
        """Let an answer wait for room, behind those that do."""
        self._waiting.append(answer)

    def cancel(self, answer: Answer) -> None:
        """Remove an answer, wherever it is on its way."""
        with contextlib.suppress(ValueError):
            self._waiting.remove(answer)
        if answer in self._running:
            self._kernel.remove(self._running[answer], missing_ok=True)
            del self._running[answer]

    def advance(self) -> bool:
        """Go on with the answers; return whether any of them has not ended."""
        for answer, tokens, reason in self._step():
            if answer.logprobs is not None:
                answer.logprobs += self._kernel.logprobs(self._running[answer])[
                    len(answer.logprobs) : len(tokens)
                ]
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

    def _step(self) -> list[tuple[Answer, list[int], str | None]]:
        """Start what there is room for, run steps, and return how far each request has come.

        The steps serve all threads that generate; each thread reads its own requests.
        """
        kernel, running = self._kernel, self._running
        with self._lock:
            remove_abandoned(kernel, self._abandoned)
            while self._waiting and not self.is_held:
                answer = self._waiting[0]
                length = len(answer.prompt) + answer.request["max_new_tokens"] - 1
                if not kernel.has_room(length):
                    break
                note = partial(setitem, running, answer)
                kernel.add_request(answer.prompt, **answer.request, announce=note)
                self._waiting.popleft()
                answer.start()
            active = kernel.requests
            own = not running or not set(running.values()).isdisjoint(active)
            if active and own and not self._has_more():
                # A step after a stop string would be in vain.
                most = 1 if any(answer.has_stops for answer in running) else _MOST_STEPS
                with contextlib.suppress(LogitsError):  # each thread finds the errors of its own
                    kernel.run(most, max_seconds=_SECONDS_OF_STEPS)
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
        if answer.logprobs is not None:
            del answer.logprobs[len(answer.tokens) :]
        answer.error = kernel.error(number)
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


def completions_of(answers: Sequence[Answer]) -> list[Completion]:
    """Return the completions of answers that have ended.

    Raises
    ------
    LogitsError
        If one of them ended by it.
    """
    completions = [answer.completion() for answer in answers]
    for answer in answers:
        if (error := answer.error) is not None:
            words = f"prompt {answer.number}: {error}"
            raise LogitsError(words, error.request, tuple(completions))
    return completions
