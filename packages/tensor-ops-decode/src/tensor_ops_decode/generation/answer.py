"""The answer to a prompt: the text that is certain so far, and the whole in the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tensor_ops_decode.completion import Completion, TokenLogprob
from tensor_ops_decode.errors import LogitsError
from tensor_ops_decode.generation.stop_strings import StopSearch, StopStrings

if TYPE_CHECKING:
    from tensor_ops_decode.text import Tokenizer

__all__ = ["Answer", "errors_of_prompt"]


@contextmanager
def errors_of_prompt(number: int, count: int, what: str = "prompt") -> Iterator[None]:
    """Name the prompt, which is called `what`, in a ValueError where there are several."""
    try:
        yield
    except ValueError as error:
        if count == 1:
            raise
        raise ValueError(f"{what} {number}: {error}") from None


class Answer:
    """One prompt on its way: its tokens, and the text that is certain.

    `request` has the arguments of its request but for the prompt. With a constraint, `end_tokens`
    says which ones have no text, as it may end by another one; and its text is all that its tokens
    write, which is what follows the constraint. `shown_tokens` are special ones that have text.
    """

    def __init__(
        self,
        number: int,
        prompt: list[int],
        request: dict[str, Any],
        tokenizer: Tokenizer,
        stops: StopStrings,
        stream: Callable[[int, str], None] | None,
        end_tokens: frozenset[int] | None = None,
        shown_tokens: frozenset[int] = frozenset(),
    ) -> None:
        self.number, self.prompt, self.request = number, prompt, request
        self.tokens: list[int] = []
        self.finish_reason: str | None = None
        self.error: LogitsError | None = None
        self.logprobs: list[TokenLogprob] | None = None if request["logprobs"] is None else []
        self.accepted_tokens = self.shared_tokens = 0
        self._text = ""
        self._held = ""
        self._tokenizer, self._end_tokens = tokenizer, end_tokens
        self._decoder = tokenizer.stream(continues=end_tokens is not None, shown=shown_tokens)
        self._search = StopSearch(stops, tokenizer) if stops else None
        self._stream = stream
        self._times: list[float] = []

    def check_rows(self, rows: int) -> None:
        """Raise a ValueError if the embedding has no row for a token that the tokenizer knows."""
        for token in self.prompt:
            if token >= rows and token in self._tokenizer:
                raise ValueError(
                    f"token {token}, {self._tokenizer.token(token)!r}, is one of the tokenizer's "
                    f"{self._tokenizer.vocab_size}, but the embedding has only {rows} rows; the "
                    "model does not know it, so leave it out"
                )

    @property
    def has_stops(self) -> bool:
        """Whether it may end by a stop string, after any of its tokens."""
        return self._search is not None

    def start(self) -> None:
        """Note that the first step with this prompt begins."""
        self._times = [time.perf_counter()]

    def add(self, tokens: list[int], reason: str | None) -> None:
        """Take all tokens so far, and why the request has ended if it has."""
        for token in tokens[len(self.tokens) :]:
            self.tokens.append(token)
            self._times[1 + (len(self.tokens) > 1) :] = [time.perf_counter()]
            if token in self._tokenizer:
                is_last = reason == "stop" and len(self.tokens) == len(tokens)
                is_end = self._end_tokens is None or token in self._end_tokens
                self._take(token, is_last and is_end)
            if self.finish_reason is not None:
                return
        if reason is not None:  # nothing will follow what is held back
            self._held += self._decoder.finish()
            if self._search is not None:
                self._search.finish()
            self._release()
            self._emit(self._held)
            self.finish_reason = self.finish_reason or reason

    def completion(self) -> Completion:
        """Return the answer, once it is finished."""
        # One that ended by an error may have no token.
        start, first, last = self._times[0], self._times[:2][-1], self._times[-1]
        return Completion(
            self._text,
            tuple(self.tokens),
            self.finish_reason or "length",
            tuple(self.prompt),
            None if self.logprobs is None else tuple(self.logprobs),
            self.accepted_tokens,
            self.shared_tokens,
            first - start,
            last - first,
        )

    def _take(self, token: int, is_end: bool) -> None:
        """Take a token; one that ends the answer has no text, but may be in a stop string."""
        if not is_end:
            self._held += self._decoder.push(token)
        if self._search is not None and (not is_end or self._tokenizer.is_special(token)):
            self._search.push(token)
        self._release()

    def _release(self) -> None:
        """Emit text up to a stop string, or up to what may become one."""
        num_held = 0
        if self._search is not None:
            num_held = self._search.num_held
            if self._search.found:
                self._held += self._decoder.finish()
                self.finish_reason = "stop"
        certain = max(len(self._held) - num_held, 0)
        self._emit(self._held[:certain])
        self._held = "" if self.finish_reason is not None else self._held[certain:]

    def _emit(self, text: str) -> None:
        self._text += text
        if text and self._stream is not None:
            self._stream(self.number, text)
