"""``/v1/completions``: texts that continue prompts, or fill the gap before a suffix."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tensor_ops_decode.serving.errors import RequestError
from tensor_ops_decode.serving.generation import ServedModel, new_id, token_text, usage_of
from tensor_ops_decode.serving.http import LAST, event
from tensor_ops_decode.text.arguments import listed_prompts

if TYPE_CHECKING:
    from tensor_ops_decode.completion import Completion, TokenLogprob
    from tensor_ops_decode.serving.answer_thread import Reply
    from tensor_ops_decode.serving.protocol import CompletionRequest
    from tensor_ops_decode.text import Tokenizer
    from tensor_ops_decode.text.arguments import Prompt

__all__ = ["Completions"]

# As OpenAI has it for this endpoint.
_MOST_TOKENS = 16
# Names of the tokens before a prefix, a suffix and what is to be filled in, of several families.
_FILL_IN = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # noqa: RUF001
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),
)


class Completions:
    """The answers to one request."""

    def __init__(self, served: ServedModel, request: CompletionRequest) -> None:
        self._served, self._request = served, request
        for name, wanted in (("echo", (None, False)), ("best_of", (None, request.n or 1))):
            if getattr(request, name) not in wanted:
                raise RequestError(
                    f"{name}={getattr(request, name)} is not supported; leave it out", param=name
                )
        if request.max_tokens == 0:
            raise RequestError("max_tokens must be 1 or larger", param="max_tokens")
        self._head = {
            "id": new_id("cmpl"),
            "object": "text_completion",
            "created": int(time.time()),
            "model": served.name,
        }
        given: Any = request.prompt
        self._prompts: list[Any] = listed_prompts(given)
        if not self._prompts:
            raise RequestError("prompt is an empty list; give a text", param="prompt")

    async def begin(self) -> Reply:
        """Let the answers join."""
        return await self._served.begin(self._request, self._prepared, len(self._prompts))

    def _prepared(self) -> tuple[Sequence[Prompt], Mapping[str, Any]]:
        request, prompts = self._request, self._prompts
        if request.suffix:
            prompts = [self._around(each, request.suffix) for each in prompts]
        most = _MOST_TOKENS if request.max_tokens is None else request.max_tokens
        return prompts, {"max_new_tokens": most, "logprobs": request.logprobs}

    def _around(self, prefix: Prompt, suffix: str) -> list[int]:
        """Return the prompt for what stands between two texts."""
        tokenizer = self._served.model.tokenizer
        for names in _FILL_IN:
            numbers = [tokenizer.find(name) for name in names]
            if None not in numbers:
                break
        else:
            raise RequestError(
                "suffix needs a model with tokens for filling in, such as <|fim_middle|>",
                param="suffix",
            )
        first, second, third = (number for number in numbers if number is not None)

        def tokens(text: Prompt) -> list[int]:
            if not isinstance(text, str):
                return list(text)
            return tokenizer.encode(text, add_special_tokens=False)

        begin = [tokenizer.bos] if tokenizer.adds_bos and tokenizer.bos is not None else []
        return [*begin, first, *tokens(prefix), second, *tokens(suffix), third]

    async def whole(self, reply: Reply) -> dict[str, Any]:
        """Return the response when all answers have ended."""
        ended: dict[int, Completion] = {}
        async for each in reply.progress():
            if each.completion is not None:
                ended[each.number] = each.completion
        completions = [ended[index] for index in sorted(ended)]
        choices = [
            self._choice(index, each.text, each.logprobs or (), each.tokens, 0, each.finish_reason)
            for index, each in enumerate(completions)
        ]
        return {**self._head, "choices": choices, "usage": self._usage(completions)}

    async def events(self, reply: Reply) -> AsyncGenerator[bytes, None]:
        """Yield the events of a stream."""
        ended: dict[int, Completion] = {}
        lengths, seen = dict[int, int](), dict[int, int]()
        async for index, text, logprobs, completion in reply.progress():
            first = seen.get(index, 0)
            tokens = reply.answers[index].tokens[first : first + len(logprobs)]
            reason = None if completion is None else completion.finish_reason
            length = lengths.get(index, 0)
            choice = self._choice(index, text, logprobs, tokens, length, reason)
            seen[index], lengths[index] = first + len(logprobs), length + len(text)
            yield event({**self._head, "choices": [choice]})
            if completion is not None:
                ended[index] = completion
        if self._request.includes_usage:
            completions = [ended[index] for index in sorted(ended)]
            yield event({**self._head, "choices": [], "usage": self._usage(completions)})
        yield LAST

    def _usage(self, completions: Sequence[Completion]) -> dict[str, Any]:
        return usage_of(completions, len(self._prompts))

    def _choice(
        self,
        index: int,
        text: str,
        logprobs: Sequence[TokenLogprob],
        tokens: Sequence[int],
        offset: int,
        reason: str | None,
    ) -> dict[str, Any]:
        found = None
        if self._request.logprobs is not None:
            found = _logprobs(self._served.model.tokenizer, tokens, logprobs, offset)
        return {"index": index, "text": text, "logprobs": found, "finish_reason": reason}


def _logprobs(
    tokenizer: Tokenizer, tokens: Sequence[int], logprobs: Sequence[TokenLogprob], offset: int
) -> dict[str, Any]:
    """Return log-probabilities in the form of this endpoint."""

    def text(token: int) -> str:
        return token_text(tokenizer, token).decode("utf-8", "replace")

    texts, offsets = [text(token) for token in tokens], []
    for each in texts:
        offsets.append(offset)
        offset += len(each)
    return {
        "tokens": texts,
        "token_logprobs": [max(each.logprob, -9999.0) for each in logprobs],
        "top_logprobs": [
            {text(token): max(value, -9999.0) for token, value in each.likeliest}
            for each in logprobs
        ],
        "text_offset": offsets,
    }
