"""``/v1/responses``: an answer as a list of items, each of which a stream begins and ends."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tensor_ops_decode.serving.chat_prompt import ChatPrompt
from tensor_ops_decode.serving.generation import MOST_NEW_TOKENS, ServedModel, new_id, usage_of
from tensor_ops_decode.serving.http import event
from tensor_ops_decode.serving.response_messages import chat_request_of

if TYPE_CHECKING:
    from tensor_ops_decode.completion import Completion
    from tensor_ops_decode.serving.answer_thread import Reply
    from tensor_ops_decode.serving.protocol import ResponsesRequest
    from tensor_ops_decode.text.arguments import Prompt

__all__ = ["Responses"]


class Responses:
    """The answer to one request."""

    def __init__(self, served: ServedModel, request: ResponsesRequest) -> None:
        self._served, self._request = served, request
        self._chat = chat_request_of(request)
        self._prompt = ChatPrompt(served, self._chat)
        wanted = None if request.text is None else request.text.format
        self._head: dict[str, Any] = {
            "id": new_id("resp"),
            "object": "response",
            "created_at": int(time.time()),
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "metadata": request.metadata or {},
            "model": served.name,
            "output": [],
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": self._chat.reasoning_effort, "summary": None},
            "store": False,
            "temperature": request.temperature,
            "text": {"format": wanted or {"type": "text"}},
            "tool_choice": request.tool_choice or "auto",
            "tools": request.tools or [],
            "top_p": request.top_p,
            "truncation": "disabled",
            "usage": None,
            "user": request.user,
        }

    async def begin(self) -> Reply:
        """Let the answer join."""
        return await self._served.begin(self._chat, self._prepared)

    def _prepared(self) -> tuple[Sequence[Prompt], Mapping[str, Any]]:
        tokens, settings = self._prompt.prepared()
        most = self._request.max_output_tokens or MOST_NEW_TOKENS
        return [tokens], {"max_new_tokens": most, **settings}

    async def whole(self, reply: Reply) -> dict[str, Any]:
        """Return the response when the answer has ended."""
        async for said in self._said(reply):
            last = said
        response: dict[str, Any] = last["response"]
        return response

    async def events(self, reply: Reply) -> AsyncGenerator[bytes, None]:
        """Yield the events of a stream."""
        number = 0
        async for said in self._said(reply):
            yield event({**said, "sequence_number": number}, said["type"])
            number += 1

    async def _said(self, reply: Reply) -> AsyncGenerator[dict[str, Any], None]:
        """Yield what a stream says; the last has the whole response."""
        for name in ("created", "in_progress"):
            yield {"type": f"response.{name}", "response": self._head}
        reader, items = self._prompt.reader(), _Items()
        async for each in reply.progress():
            deltas = reader.push(each.text)
            if each.completion is not None:
                deltas += reader.finish()
            for delta in deltas:
                for said in items.take(delta):
                    yield said
            if each.completion is not None:
                for said in items.end(is_cut=_is_cut(each.completion)):
                    yield said
                yield self._ended(items.items, each.completion)

    def _ended(self, items: list[dict[str, Any]], completion: Completion) -> dict[str, Any]:
        is_cut = _is_cut(completion)
        usage = usage_of([completion])
        status = "incomplete" if is_cut else "completed"
        response = {
            **self._head,
            "status": status,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "output": items,
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": usage["prompt_tokens_details"],
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage["total_tokens"],
            },
        }
        return {"type": f"response.{status}", "response": response}


class _Items:
    """The items of a response, of which the last one may be open."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self._kind: Any = None  # of the open item; of a call with its number
        self._text = ""

    def take(self, delta: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield what is said of a part of a message."""
        if text := delta.get("reasoning_content"):
            yield from self._add("reasoning", text)
        if text := delta.get("content"):
            yield from self._add("message", text)
        for call in delta.get("tool_calls", ()):
            function = call["function"]
            kind = "function_call", call["index"]
            if "name" in function:
                yield from self._open(kind, call)
            if text := function.get("arguments"):
                yield from self._add(kind, text)

    def end(self, *, is_cut: bool = False) -> Iterator[dict[str, Any]]:
        """Yield what is said when the open item ends, or is cut off."""
        if self._kind is None:
            return
        item, at = self.items[-1], self._place()
        item["status"] = "incomplete" if is_cut else "completed"
        if item["type"] == "function_call":
            item["arguments"] = self._text
            done = {"arguments": self._text, "name": item["name"]}
            yield {"type": "response.function_call_arguments.done", **at, **done}
        else:
            part = item["content"][0]
            part["text"] = self._text
            kind = f"response.{part['type']}.done"
            yield {"type": kind, **at, "content_index": 0, "text": self._text, **_more(part)}
            yield {"type": "response.content_part.done", **at, "content_index": 0, "part": part}
        index = {"output_index": at["output_index"]}
        yield {"type": "response.output_item.done", **index, "item": item}
        self._kind, self._text = None, ""

    def _open(self, kind: Any, call: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """Yield what is said when an item begins, after the end of the one before."""
        yield from self.end()
        self._kind = kind
        item: dict[str, Any]
        part: dict[str, Any] | None = None
        if call is not None:
            item = {
                "type": "function_call",
                "id": new_id("fc"),
                "call_id": call["id"],
                "name": call["function"]["name"],
                "arguments": "",
            }
        elif kind == "reasoning":
            part = {"type": "reasoning_text", "text": ""}
            item = {"type": "reasoning", "id": new_id("rs"), "summary": [], "content": []}
        else:
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            item = {"type": "message", "id": new_id("msg"), "role": "assistant", "content": []}
        item["status"] = "in_progress"
        self.items.append(item)
        at = self._place()
        index = {"output_index": at["output_index"]}
        yield {"type": "response.output_item.added", **index, "item": item}
        if part is not None:
            yield {"type": "response.content_part.added", **at, "content_index": 0, "part": part}
            item["content"] = [part]

    def _add(self, kind: Any, text: str) -> Iterator[dict[str, Any]]:
        if self._kind != kind:
            yield from self._open(kind)
        self._text += text
        at = self._place()
        if isinstance(kind, tuple):
            yield {"type": "response.function_call_arguments.delta", **at, "delta": text}
            return
        part = self.items[-1]["content"][0]
        said = {"type": f"response.{part['type']}.delta", **at, "content_index": 0, "delta": text}
        yield {**said, **_more(part)}

    def _place(self) -> dict[str, Any]:
        return {"item_id": self.items[-1]["id"], "output_index": len(self.items) - 1}


def _is_cut(completion: Completion) -> bool:
    """Return whether an answer has ended before the model ended it."""
    return completion.finish_reason == "length"


def _more(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the events of a text have beside it."""
    return {"logprobs": []} if part["type"] == "output_text" else {}
