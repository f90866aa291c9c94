"""What a kernel lets a caller do with requests, between its steps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from tensor_ops_decode.arguments import whole
from tensor_ops_decode.completion import TokenLogprob
from tensor_ops_decode.errors import LogitsError
from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.program import Program
from tensor_ops_decode.serving.request import checked_request
from tensor_ops_decode.serving.requests import Requests

__all__ = ["KernelRequests"]


class KernelRequests:
    """The requests of a kernel, which its calls run."""

    _end_tokens: frozenset[int]

    @property
    @abstractmethod
    def program(self) -> Program:
        """What runs."""

    @abstractmethod
    def _in_use(self) -> AbstractContextManager[Requests]:
        """Hold the lock and give the requests, if the kernel can run them."""

    @property
    def requests(self) -> tuple[int, ...]:
        """The active requests, in the order in which they were added."""
        with self._in_use() as requests:
            return requests.active

    def add_request(
        self,
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
            prompt, how = checked_request(self.program, tokens, max_new_tokens, sampling)
            end_tokens = frozenset[int]() if ignore_eos else self._end_tokens
            count = None if logprobs is None else whole("logprobs", logprobs, 0)
            return requests.add(prompt, end_tokens, max_new_tokens, how, count)

    def check_request(
        self,
        tokens: Sequence[int],
        *,
        max_new_tokens: int | None = None,
        ignore_eos: bool = False,
        logprobs: int | None = None,
        **sampling: Any,
    ) -> None:
        """Raise the error that `add_request` would, unless it is that no more may be added now."""
        with self._in_use():
            checked_request(self.program, tokens, max_new_tokens, sampling)
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
