"""The answer to a prompt: the text that is certain so far, and the whole in the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tensor_ops_decode.completion import Completion, TokenLogprob

if TYPE_CHECKING:
    from tensor_ops_decode.text import Tokenizer

__all__ = ["Answer", "errors_of_prompt"]


@contextmanager
def errors_of_prompt(number: int, count: int) -> Iterator[None]:
    """Name the prompt in a ValueError where there are several."""
    try:
        yield
    except ValueError as error:
        if count == 1:
            raise
        raise ValueError(f"prompt {number}: {error}") from None


class Answer:
    """One prompt on its way: its tokens, and the text that is certain."""

    def __init__(
        self,
        number: int,
        prompt: list[int],
        tokenizer: Tokenizer,
        stops: tuple[str, ...],
        stream: Callable[[int, str], None] | None,
    ) -> None:
        self.number, self.prompt = number, prompt
        self.tokens: list[int] = []
        self.finish_reason: str | None = None
        self.logprobs: tuple[TokenLogprob, ...] | None = None
        self.accepted_tokens = self.shared_tokens = 0
        self._text = ""
        self._held = ""
        self._tokenizer, self._decoder = tokenizer, tokenizer.stream()
        self._stops, self._stream = stops, stream
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

    def start(self) -> None:
        """Note that the first step with this prompt begins."""
        self._times = [time.perf_counter()]

    def add(self, tokens: list[int], reason: str | None) -> None:
        """Take all tokens so far, and why the request has ended if it has."""
        for token in tokens[len(self.tokens) :]:
            self.tokens.append(token)
            self._times[1 + (len(self.tokens) > 1) :] = [time.perf_counter()]
            is_end = reason == "stop" and len(self.tokens) == len(tokens)
            if not is_end and token in self._tokenizer:
                self._release(self._decoder.push(token))
            if self.finish_reason is not None:
                return
        if reason is not None:  # nothing will follow what is held back
            self._release(self._decoder.finish())
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
            self.logprobs,
            self.accepted_tokens,
            self.shared_tokens,
            first - start,
            last - first,
        )

    def _release(self, text: str) -> None:
        """Emit text up to a stop string, or up to what may become one."""
        text, self._held = self._held + text, ""
        found = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        if found:
            self.finish_reason = "stop"
            self._emit(text[: min(found)])
            return
        kept = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - kept :]
        self._emit(text[: len(text) - kept])

    def _emit(self, text: str) -> None:
        self._text += text
        if text and self._stream is not None:
            self._stream(self.number, text)


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of a text begin a stop string."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
