"""The rows of a batch in a kernel: its requests, column by column of their tokens."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import setitem
from typing import Any, NoReturn

import numpy as np

from tensor_ops_decode import LogitsError, PersistentKernel

__all__ = ["KernelSampledRows", "CallerSampledRows"]


class Rows:
    """Requests of a kernel, one for each row; leaving the context removes them."""

    def __init__(self, kernel: PersistentKernel) -> None:
        self.kernel = kernel
        self._requests: dict[int, int] = {}  # of the rows that go on

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End all rows."""
        for row in [*self._requests]:
            self.end(row)

    def add(self, row: int, prompt: list[int], how: Mapping[str, Any]) -> None:
        """Add the request of a row, of which the context knows before the kernel has it."""
        self.kernel.add_request(prompt, **how, announce=partial(setitem, self._requests, row))

    def end(self, row: int) -> None:
        """Take no further tokens of a row."""
        if row in self._requests:
            # Ctrl-C may come before the request is added, and between these two lines.
            self.kernel.remove(self._requests[row], missing_ok=True)
            del self._requests[row]

    def _check_errors(self) -> None:
        """Raise the error of a row whose logits have chosen no token."""
        for row, request in self._requests.items():
            error = self.kernel.error(request)
            if error is not None:
                error.add_note(f"It is row {row} of the batch.")
                raise error


class KernelSampledRows(Rows):
    """Rows whose tokens the kernel samples. Those that it has no room for wait until others end.

    `settings` has for each row what `PersistentKernel.add_request` takes beside the prompt. Where
    rows go on `in_step`, Python looks at the tokens of all of them after each step, so that none
    may wait.

    Raises TypeError or ValueError if a row can be no request, or there is no room for all rows that
    go on in step.
    """

    def __init__(
        self,
        kernel: PersistentKernel,
        prompts: Sequence[list[int]],
        settings: Sequence[Mapping[str, Any]],
        *,
        in_step: bool,
    ) -> None:
        super().__init__(kernel)
        if in_step:
            _check_together(kernel, prompts, settings[0]["max_new_tokens"])
        self._tokens: list[list[int]] = [[] for _ in prompts]
        self._waiting = deque(enumerate(zip(prompts, settings, strict=True)))
        for _, (prompt, how) in self._waiting:
            kernel.check_request(prompt, **how)

    def columns(self, most_steps: int, max_seconds: float, pad_token: int) -> Iterator[list[int]]:
        """Yield the next token of each row, until all have ended; of one that has, the padding.

        Up to `most_steps` steps, and steps of `max_seconds`, may run before tokens are looked at.
        """
        length = 0
        while True:
            while self._waiting or any(len(self._tokens[row]) == length for row in self._requests):
                self._advance(most_steps, max_seconds)
            if not any(len(tokens) > length for tokens in self._tokens):
                return
            yield [tokens[length] if len(tokens) > length else pad_token for tokens in self._tokens]
            length += 1

    def cut(self, row: int, length: int) -> None:
        """End a row at a length, whatever has been generated after that."""
        self.end(row)
        del self._tokens[row][length:]

    def _advance(self, most_steps: int, max_seconds: float) -> None:
        """Start the rows that there is room for, and run steps."""
        kernel = self.kernel
        while self._waiting:
            row, (prompt, how) = self._waiting[0]
            if not kernel.has_room(len(prompt) + how["max_new_tokens"] - 1):
                break
            self.add(row, prompt, how)
            self._waiting.popleft()
        if not self._requests:
            _raise_no_room(kernel)
        with contextlib.suppress(LogitsError):  # which may be of another's request
            if not {*kernel.requests}.isdisjoint(self._requests.values()):
                kernel.run(most_steps, max_seconds=max_seconds)
        self._check_errors()
        for row, request in [*self._requests.items()]:
            self._tokens[row] = kernel.tokens(request)
            if kernel.finish_reason(request) is not None:
                self.end(row)


class CallerSampledRows(Rows):
    """Rows whose tokens the caller samples, all in step.

    Raises TypeError or ValueError if a row can be no request, or the kernel has no room for all of
    them at once.
    """

    def __init__(
        self, kernel: PersistentKernel, prompts: Sequence[list[int]], max_new_tokens: int
    ) -> None:
        super().__init__(kernel)
        self._how: dict[str, Any] = {
            "choose": False,
            "ignore_eos": True,
            "max_new_tokens": max_new_tokens,
        }
        for prompt in prompts:
            kernel.check_request(prompt, **self._how)
        _check_together(kernel, prompts, max_new_tokens)
        self._prompts = prompts
        self._logits: np.ndarray[Any, np.dtype[np.float32]] | None = None

    def __enter__(self) -> CallerSampledRows:
        try:
            for row, prompt in enumerate(self._prompts):
                if not self.kernel.has_room(len(prompt) + self._how["max_new_tokens"] - 1):
                    _raise_no_room(self.kernel)
                self.add(row, prompt, self._how)
        except BaseException:
            self.__exit__()
            raise
        return self

    def logits(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return the logits of the next token of each row; of one that has ended, its last."""
        kernel = self.kernel
        while not {*self._requests.values()} <= {*kernel.waiting}:
            with contextlib.suppress(LogitsError):
                kernel()
            self._check_errors()
        found = {row: kernel.logits(request) for row, request in self._requests.items()}
        if self._logits is None:
            self._logits = np.stack([found[row] for row in range(len(self._prompts))])
        for row, logits in found.items():
            self._logits[row] = logits
        return self._logits

    def extend(self, tokens: Sequence[int]) -> None:
        """Give each row that goes on its next token."""
        for row, request in self._requests.items():
            self.kernel.extend(request, [tokens[row]])


def _check_together(
    kernel: PersistentKernel, prompts: Sequence[list[int]], max_new_tokens: int
) -> None:
    """Raise a ValueError unless a kernel has room for all rows at once."""
    limits = kernel.program.limits
    if len(prompts) > limits.max_requests:
        raise ValueError(
            f"{len(prompts)} rows go on in step where Python looks at their tokens, which is more "
            f"than max_num_batched_requests, {limits.max_requests}; give fewer at once, or make "
            "the decoder with more"
        )
    pages = [-(-(len(each) + max_new_tokens - 1) // limits.page_size) for each in prompts]
    if sum(pages) > limits.num_pages:
        raise ValueError(
            f"{len(prompts)} rows of up to {max(map(len, prompts)) + max_new_tokens} tokens need "
            f"{sum(pages)} pages of {limits.page_size} where they go on in step, which is more "
            f"than max_num_pages, {limits.num_pages}; give fewer at once, or fewer max_new_tokens"
        )


def _raise_no_room(kernel: PersistentKernel) -> NoReturn:
    raise RuntimeError(
        f"the kernel has no room beside its active requests, {[*kernel.requests]}; remove() those "
        "that were added to it by hand, or wait until they have ended"
    )
