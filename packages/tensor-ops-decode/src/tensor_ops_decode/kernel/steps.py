"""The steps of a kernel: one at each call, or several in a row."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from contextlib import AbstractContextManager

from tensor_ops_decode.arguments import check_seconds, whole
from tensor_ops_decode.errors import CapacityError
from tensor_ops_decode.serving.requests import Requests, last_of_each

__all__ = ["KernelSteps"]

# What one call of the executable takes at most, if its steps take no longer than those before: a
# signal waits for its end, and so do other threads. Its pages are held beforehand.
_MOST_SECONDS = 0.05
_MOST_STEPS = 32


class KernelSteps:
    """What calls of a kernel do."""

    @abstractmethod
    def _in_use(self) -> AbstractContextManager[Requests]:
        """Hold the lock and give the requests, if the kernel can run them."""

    @abstractmethod
    def _in_step(self) -> AbstractContextManager[Requests]:
        """Hold the lock and give the requests, with the default one if none was added."""

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
            others go on: what they have got is in `tokens`.
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
            if has_ended or (max_seconds - seconds) / done > seconds:
                break
        return tokens

    def synchronize(self) -> None:
        """Wait for the step that another thread runs; one's own has ended when its call returns."""
        with self._in_use():
            pass
