"""``/v1/chat/completions``: messages, tools and schemas, and answers to them."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tensor_ops_decode.serving.chat_prompt import ChatPrompt
from tensor_ops_decode.serving.errors import RequestError
from tensor_ops_decode.serving.generation import (
    MOST_NEW_TOKENS,
    ServedModel,
    new_id,
    token_text,
    usage_of,
)
from tensor_ops_decode.serving.http import LAST, event

if TYPE_CHECKING:
    from tensor_ops_decode.completion import Completion, TokenLogprob
    from tensor_ops_decode.serving.answer_thread import Reply
    from tensor_ops_decode.serving.protocol import ChatRequest
    from tensor_ops_decode.text import Tokenizer
    from tensor_ops_decode.text.arguments import Prompt

__all__ = ["Chat"]

_UNSUPPORTED = ("audio", "functions", "function_call", "prediction", "web_search_options")


class Chat:
    """The answers to one request."""

    def __init__(self, served: ServedModel, request: ChatRequest) -> None:
        self._served, self._request = served, request
        for name in _UNSUPPORTED:
            if getattr(request, name) is not None:
                raise RequestError(f"{name} is not supported; leave it out", param=name)
        if request.modalities not in (None, ["text"]):
            raise RequestError("modalities must be ['text']", param="modalities")
        if request.top_logprobs is not None and not request.logprobs:
            raise RequestError("top_logprobs needs logprobs=true", param="top_logprobs")
        self._prompt = ChatPrompt(served, request)
        self._head = {
            "id": new_id("chatcmpl"),
            "created": int(time.time()),
            "model": served.name,
        }

    async def begin(self) -> Reply:
        """Let the answers join."""
        return await self._served.begin(self._request, self._prepared)

    def _prepared(self) -> tuple[Sequence[Prompt], Mapping[str, Any]]:
        request = self._request
        tokens, settings = self._prompt.prepared()
        most = request.max_completion_tokens or request.max_tokens or MOST_NEW_TOKENS
        count = (request.top_logprobs or 0) if request.logprobs else None
        return [tokens], {"max_new_tokens": most, "logprobs": count, **settings}

    async def whole(self, reply: Reply) -> dict[str, Any]:
        """Return the response when all answers have ended."""
        readers = [self._prompt.reader() for _ in reply.answers]
        ended: dict[int, Completion] = {}
        async for each in reply.progress():
            readers[each.number].push(each.text)
            if each.completion is not None:
                readers[each.number].finish()
                ended[each.number] = each.completion
        choices = []
        for index, reader in enumerate(readers):
            completion = ended[index]
            choice = {
                "index": index,
                "message": reader.message(),
                "logprobs": self._logprobs(completion.tokens, completion.logprobs or ()),
                "finish_reason": reader.reason(completion.finish_reason),
            }
            choices.append(choice)
        usage = usage_of([ended[index] for index in sorted(ended)])
        return {**self._head, "object": "chat.completion", "choices": choices, "usage": usage}

    async def events(self, reply: Reply) -> AsyncGenerator[bytes, None]:
        """Yield the events of a stream."""
        head = {**self._head, "object": "chat.completion.chunk"}
        if self._request.includes_usage:
            head["usage"] = None
        readers = [self._prompt.reader() for _ in reply.answers]
        seen = [0] * len(readers)
        completions: list[Completion] = []

        def chunk(index: int, delta: Any, logprobs: Any = None, reason: str | None = None) -> bytes:
            choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
            return event({**head, "choices": [choice]})

        for index in range(len(readers)):
            yield chunk(index, {"role": "assistant", "content": ""})
        async for index, text, logprobs, completion in reply.progress():
            reader, first = readers[index], seen[index]
            deltas = reader.push(text)
            if completion is not None:
                deltas += reader.finish()
                completions.append(completion)
            tokens = reply.answers[index].tokens[first : first + len(logprobs)]
            seen[index] += len(logprobs)
            found = self._logprobs(tokens, logprobs)
            if logprobs and not deltas:
                deltas = [{}]
            for number, delta in enumerate(deltas):
                yield chunk(index, delta, None if number else found)
            if completion is not None:
                yield chunk(index, {}, None, reader.reason(completion.finish_reason))
        if self._request.includes_usage:
            yield event({**head, "choices": [], "usage": usage_of(completions)})
        yield LAST

    def _logprobs(
        self, tokens: Sequence[int], logprobs: Sequence[TokenLogprob]
    ) -> dict[str, Any] | None:
        """Return log-probabilities in the form of this endpoint."""
        if not self._request.logprobs:
            return None
        tokenizer = self._served.model.tokenizer
        content = [
            {
                **_described(tokenizer, token, each.logprob),
                "top_logprobs": [_described(tokenizer, *likely) for likely in each.likeliest],
            }
            for token, each in zip(tokens, logprobs, strict=True)
        ]
        return {"content": content, "refusal": None}


def _described(tokenizer: Tokenizer, token: int, logprob: float) -> dict[str, Any]:
    found = token_text(tokenizer, token)
    text = found.decode("utf-8", "replace")
    return {"token": text, "logprob": max(logprob, -9999.0), "bytes": [*found]}
