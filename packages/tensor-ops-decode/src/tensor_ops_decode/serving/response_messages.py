"""A request to ``/v1/responses`` as one for a chat: its items are messages and calls."""

from __future__ import annotations

from typing import Any

import msgspec

from tensor_ops_decode.serving.errors import RequestError
from tensor_ops_decode.serving.protocol import ChatRequest, ContentPart, ResponsesRequest

__all__ = ["chat_request_of"]

_UNSUPPORTED = {
    "previous_response_id": "the server keeps no responses; send the conversation as input",
    "conversation": "the server keeps no conversations; send the conversation as input",
    "prompt": "the server keeps no prompts; send their text as instructions",
    "top_logprobs": "ask /v1/chat/completions for log-probabilities",
}


def chat_request_of(request: ResponsesRequest) -> ChatRequest:
    """Return the same request for a chat.

    Tools that are no functions are left out, as the model has no way to use them.

    Raises
    ------
    RequestError
        If it has what is not supported.
    """
    for name, way in _UNSUPPORTED.items():
        if getattr(request, name) not in (None, 0):
            raise RequestError(f"{name} is not supported: {way}", param=name)
    if request.background:
        raise RequestError(
            "background=true is not supported; let the answer stream", param="background"
        )
    if request.truncation not in (None, "disabled"):
        raise RequestError("truncation must be 'disabled'", param="truncation")
    tools = [_function(tool) for tool in request.tools or () if tool.get("type") == "function"]
    choice: Any = request.tool_choice
    if isinstance(choice, dict) and choice.get("type") == "function":
        choice = {"type": "function", "function": {"name": choice.get("name")}}
    given: dict[str, Any] = {
        "messages": _messages(request),
        "model": request.model,
        "stream": request.stream,
        "max_completion_tokens": request.max_output_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "tools": tools or None,
        "tool_choice": choice if tools or choice != "auto" else None,
        "parallel_tool_calls": request.parallel_tool_calls,
        "reasoning_effort": None if request.reasoning is None else request.reasoning.effort,
        "response_format": _format(request),
    }
    try:
        return msgspec.convert(given, ChatRequest)
    except msgspec.ValidationError as error:
        raise RequestError(f"the request is wrong: {error}", param="input") from None


def _function(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool in the form that chats have, in which templates know it."""
    function = {key: value for key, value in tool.items() if key not in ("type", "strict")}
    return {"type": "function", "function": function}


def _format(request: ResponsesRequest) -> dict[str, Any] | None:
    given = request.text.format if request.text is not None else None
    if given is None or given.get("type") != "json_schema":
        return given
    return {"type": "json_schema", "json_schema": {"schema": given.get("schema")}}


def _messages(request: ResponsesRequest) -> list[dict[str, Any]]:
    """Return the messages of the instructions and of the items of the input."""
    messages: list[dict[str, Any]] = []
    if request.instructions is not None:
        messages.append({"role": "system", "content": request.instructions})
    if isinstance(request.input, str):
        return [*messages, {"role": "user", "content": request.input}]
    for item in request.input:
        kind = item.get("type", "message")
        if kind == "message":
            message = {"role": item.get("role"), "content": item.get("content")}
            is_calling = bool(messages) and "content" not in messages[-1]
            if message["role"] == "assistant" and is_calling:
                messages[-1] |= message
            else:
                messages.append(message)
        elif kind == "function_call":
            call = {
                "id": item.get("call_id"),
                "function": {"name": item.get("name"), "arguments": item.get("arguments", "{}")},
            }
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant"})
            messages[-1].setdefault("tool_calls", []).append(call)
        elif kind == "function_call_output":
            output = {"role": "tool", "tool_call_id": item.get("call_id")}
            messages.append({**output, "content": item.get("output")})
        elif kind == "reasoning":
            if text := _thoughts_of(item.get("content")):
                messages.append({"role": "assistant", "reasoning_content": text})
        else:
            raise RequestError(f"input has an item of type {kind!r:.80}, which is not supported")
    return messages


def _thoughts_of(content: Any) -> str:
    """Return the text of an item of reasoning, whose content may have been left out."""
    try:
        parts = msgspec.convert(content or [], list[ContentPart])
    except msgspec.ValidationError as error:
        raise RequestError(f"an item of reasoning is wrong: {error}", param="input") from None
    return "".join(part.text or "" for part in parts)
