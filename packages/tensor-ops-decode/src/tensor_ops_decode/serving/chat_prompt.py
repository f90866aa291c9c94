"""The prompt of a conversation as a client sends it, and what the answer is read with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensor_ops_decode.serving.answer_reader import AnswerReader
from tensor_ops_decode.serving.errors import RequestError

if TYPE_CHECKING:
    from tensor_ops_decode.serving.formats.answer_format import AnswerFormat
    from tensor_ops_decode.serving.generation import ServedModel
    from tensor_ops_decode.serving.protocol import ChatRequest, ContentPart, Message

__all__ = ["ChatPrompt"]

# How many of the last tokens of a prompt show whether it has begun reasoning.
_LAST_TOKENS = 64
# What chat templates get from other fields of a request.
_OWN_VARIABLES = {"self", "messages", "tools", "continue_final_message"}


class ChatPrompt:
    """What the model's chat template makes of a request.

    Raises
    ------
    RequestError
        If the request has wrong tools, or asks for a call of one that it has not.
    """

    def __init__(self, served: ServedModel, request: ChatRequest) -> None:
        self._model, self._request = served.model, request
        self._format_of = served.answer_format
        self._tools = list(request.tools or ())
        self._shown_tools = [_checked_tool(tool) for tool in self._tools]
        names = [tool["function"]["name"] for tool in self._shown_tools]
        if len({*names}) < len(names):
            raise RequestError(f"two tools have the same name: {names!r:.80}", param="tools")
        self._called = _called_tool(request)
        if request.tool_choice == "none":
            self._tools = []
        elif self._called is not None and not self._tools:
            raise RequestError("tool_choice needs tools, got none", param="tool_choice")
        elif self._called is not None and self._wanted_schema() is not None:
            raise RequestError(
                "a call that tool_choice requires has no other form; leave out response_format",
                param="response_format",
            )
        self._format: AnswerFormat | None = None
        self._end = ""  # of the prompt's text

    def prepared(self) -> tuple[list[int], dict[str, Any]]:
        """Return the tokens of the prompt, and arguments for its answers."""
        request, model = self._request, self._model
        self._format = self._format_of(has_tools=bool(self._tools))
        if self._tools and self._format.tool_calls is None:
            raise RequestError(
                "the model's chat template writes no calls of tools, or none that are understood; "
                "leave out tools",
                param="tools",
            )
        variables: dict[str, Any] = dict(request.chat_template_kwargs or {})
        if taken := variables.keys() & _OWN_VARIABLES:
            raise RequestError(
                f"chat_template_kwargs cannot have {', '.join(sorted(taken))}",
                param="chat_template_kwargs",
            )
        if request.reasoning_effort is not None:
            variables.setdefault("reasoning_effort", request.reasoning_effort)
        if self._tools:
            variables["tools"] = self._shown_tools
        messages = self._format.seen_messages([_message_of(each) for each in request.messages])
        prompt = model.chat_prompt(
            messages, continue_final_message=bool(request.continue_final_message), **variables
        )
        last = prompt[-_LAST_TOKENS:]
        self._end = model.tokenizer.decode(last, skip_special_tokens=False)
        shown = self._format.visible_tokens(model.tokenizer)
        return prompt, {"shown_tokens": shown, **self._constraint(self._format)}

    def reader(self) -> AnswerReader:
        """Return what reads an answer to the prompt that `prepared` has returned."""
        assert self._format is not None
        most_calls = 1 if self._request.parallel_tool_calls is False else None
        return AnswerReader(self._format, self._tools, self._end, most_calls)

    def _constraint(self, known: AnswerFormat) -> dict[str, Any]:
        if self._called is not None and self._tools:
            grammar = known.grammar(
                self._tools,
                name=self._called or None,
                parallel=self._request.parallel_tool_calls is not False,
                prompt=self._end,
                tokenizer=self._model.tokenizer,
            )
            return {"grammar": grammar}
        schema = self._wanted_schema()
        if schema is None:
            return {}
        behind = known.schema_grammar(schema, self._end, self._model.tokenizer)
        return {"json_schema": schema} if behind is None else {"grammar": behind}

    def _wanted_schema(self) -> dict[str, Any] | None:
        wanted = self._request.response_format
        if wanted is None or wanted.type == "text":
            return None
        if wanted.type == "json_object":
            return {"type": "object"}
        if wanted.json_schema is None or wanted.json_schema.schema is None:
            raise RequestError(
                "response_format of type json_schema needs json_schema.schema",
                param="response_format",
            )
        return wanted.json_schema.schema


def _checked_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool with parameters, which templates take for granted."""
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, dict):
        raise RequestError(
            "a tool must have the type 'function', and an object as its function, "
            f"got {tool!r:.80}",
            param="tools",
        )
    if not isinstance(function.get("name"), str) or not function["name"]:
        raise RequestError(f"a tool needs a name, got {function!r:.80}", param="tools")
    parameters = function.get("parameters")
    if parameters is None:
        parameters = {"type": "object", "properties": {}}
    if not isinstance(parameters, dict):
        raise RequestError(
            f"the parameters of a tool must be a JSON schema, got {parameters!r:.80}",
            param="tools",
        )
    return {**tool, "function": {**function, "parameters": parameters}}


def _called_tool(request: ChatRequest) -> str | None:
    """Return the name of the tool that must be called, "" for any, None if none must be."""
    choice = request.tool_choice
    if choice in (None, "auto", "none"):
        return None
    if choice == "required":
        return ""
    named = choice.get("function") if isinstance(choice, dict) else None
    name = named.get("name") if isinstance(named, dict) else None
    if not isinstance(name, str) or not name:
        raise RequestError(
            "tool_choice must be 'none', 'auto', 'required' or name a function, "
            f"got {choice!r:.80}",
            param="tool_choice",
        )
    return name


def _message_of(given: Message) -> dict[str, Any]:
    """Return a message as chat templates know it."""
    role = "system" if given.role == "developer" else given.role
    if given.content is None and role != "assistant":
        raise RequestError(f"a message of the role {given.role!r} needs content", param="messages")
    found: dict[str, Any] = {"role": role, "content": _text_of(given.content)}
    for name in ("name", "tool_call_id", "reasoning_content"):
        if (value := getattr(given, name)) is not None:
            found[name] = value
    if given.tool_calls:
        found["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": call.function.arguments},
            }
            for call in given.tool_calls
        ]
    return found


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
