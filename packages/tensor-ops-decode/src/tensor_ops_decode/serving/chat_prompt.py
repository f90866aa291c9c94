"""The prompt of a conversation as a client sends it, and what the answer is read with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tensor_ops_decode.serving.answer_reader import AnswerReader
from tensor_ops_decode.serving.errors import RequestError

if TYPE_CHECKING:
    from tensor_ops_decode.serving.generation import ServedModel
    from tensor_ops_decode.serving.protocol import ChatRequest, ContentPart, Message

__all__ = ["ChatPrompt"]


class ChatPrompt:
    """What a request makes of the model's chat template."""

    def __init__(self, served: ServedModel, request: ChatRequest) -> None:
        self._served, self._request = served, request

    def prepared(self) -> tuple[list[int], dict[str, Any]]:
        """Return the tokens of the prompt, and arguments of `Model.generate`."""
        request = self._request
        messages = [message_of(each) for each in request.messages]
        variables: dict[str, Any] = dict(request.chat_template_kwargs or {})
        if request.reasoning_effort is not None:
            variables.setdefault("reasoning_effort", request.reasoning_effort)
        prompt = self._served.model.chat_prompt(
            messages,
            continue_final_message=bool(request.continue_final_message),
            **variables,
        )
        return prompt, self._constraint()

    def reader(self) -> AnswerReader:
        """Return what reads an answer."""
        return AnswerReader()

    def _constraint(self) -> dict[str, Any]:
        wanted = self._request.response_format
        if wanted is None or wanted.type == "text":
            return {}
        if wanted.type == "json_object":
            return {"json_schema": {"type": "object"}}
        if wanted.json_schema is None or wanted.json_schema.schema is None:
            raise RequestError(
                "response_format of type json_schema needs json_schema.schema",
                param="response_format",
            )
        return {"json_schema": wanted.json_schema.schema}


def message_of(given: Message) -> dict[str, Any]:
    """Return a message as chat templates know it."""
    role = "system" if given.role == "developer" else given.role
    found: dict[str, Any] = {"role": role, "content": _text_of(given.content)}
    for name in ("name", "tool_call_id", "reasoning_content"):
        if (value := getattr(given, name)) is not None:
            found[name] = value
    if given.tool_calls:
        found["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": _arguments(call.function)},
            }
            for call in given.tool_calls
        ]
    return found


def _arguments(function: Any) -> Any:
    """Return the arguments of an earlier call as the object that templates write."""
    try:
        return msgspec.json.decode(function.arguments or "{}")
    except msgspec.DecodeError as error:
        raise RequestError(
            f"the arguments of the call of {function.name!r:.80} are no JSON: {error}",
            param="messages",
        ) from None


def _text_of(content: str | list[ContentPart] | None) -> str | None:
    if not isinstance(content, list):
        return content
    for part in content:
        if part.type not in ("text", "input_text", "output_text", "refusal"):
            raise RequestError(
                f"the model reads text alone, got a part of type {part.type!r:.80}",
                param="messages",
            )
    return "".join(part.text or part.refusal or "" for part in content)
