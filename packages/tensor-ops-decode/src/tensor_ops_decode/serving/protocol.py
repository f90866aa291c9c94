"""The requests that clients send, as msgspec decodes them.

A field that OpenAI has and that would change an answer in a way that is not there is refused by
name; those that change nothing here, such as ``user``, are taken. Fields that OpenAI does not have
are named as the arguments of `Model.generate`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from tensor_ops_decode.serving.errors import RequestError

__all__ = [
    "ChatRequest",
    "CompletionRequest",
    "EmbeddingRequest",
    "Generation",
    "Message",
    "ResponseFormat",
    "ResponsesRequest",
    "StreamOptions",
    "decoded",
]

_Request = TypeVar("_Request", bound=Struct)

Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]


class StreamOptions(Struct):
    """What a stream has beside its pieces."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class Generation(Struct, kw_only=True, forbid_unknown_fields=True):
    """What requests for text have in common."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Count | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    typical_p: float | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: float | None = None
    penalty_last_n: int | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: str | list[str] | None = None
    logit_bias: dict[str, float] | None = None
    ignore_eos: bool | None = None
    regex: str | None = None
    grammar: str | None = None
    # What changes no answer here.
    user: str | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None

    @property
    def is_constrained(self) -> bool:
        """Whether something is to be compiled that answers follow."""
        return self.regex is not None or self.grammar is not None

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with the numbers of tokens."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)


class ToolFunction(Struct):
    """The function of a call, with its arguments as JSON text."""

    name: str
    arguments: str = "{}"


class ToolCall(Struct):
    """A call that an earlier answer has made."""

    function: ToolFunction
    id: str | None = None
    type: str = "function"


class ContentPart(Struct):
    """A part of a message."""

    type: str
    text: str | None = None
    refusal: str | None = None


class Message(Struct):
    """A message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


class JsonSchemaFormat(Struct):
    """The schema of an answer."""

    schema: dict[str, Any] | None = None
    name: str | None = None
    strict: bool | None = None


class ResponseFormat(Struct):
    """What an answer has to be."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None


class ChatRequest(Generation, kw_only=True, forbid_unknown_fields=True):
    """A request to ``/v1/chat/completions``."""

    messages: Annotated[list[Message], Meta(min_length=1)]
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    response_format: ResponseFormat | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    continue_final_message: bool | None = None
    verbosity: str | None = None
    # What is not there.
    modalities: list[str] | None = None
    audio: Any = None
    functions: Any = None
    function_call: Any = None
    prediction: Any = None
    web_search_options: Any = None

    @property
    def is_constrained(self) -> bool:
        """Whether something is to be compiled that answers follow."""
        has_form = self.response_format is not None or self.tool_choice not in (None, "auto")
        return has_form or super().is_constrained


class CompletionRequest(Generation, kw_only=True, forbid_unknown_fields=True):
    """A request to ``/v1/completions``."""

    prompt: str | list[str | int | list[int]]
    suffix: str | None = None
    max_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    echo: bool | None = None
    best_of: int | None = None


class EmbeddingRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """A request to ``/v1/embeddings``."""

    input: str | list[str | int | list[int]]
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Count | None = None
    user: str | None = None


class TextSettings(Struct):
    """What the text of a response has to be."""

    format: dict[str, Any] | None = None
    verbosity: str | None = None


class Reasoning(Struct):
    """How a model is to think."""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class ResponsesRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """A request to ``/v1/responses``."""

    input: str | list[dict[str, Any]]
    model: str | None = None
    instructions: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_output_tokens: Count | None = None
    temperature: float | None = None
    top_p: float | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: TextSettings | None = None
    reasoning: Reasoning | None = None
    # What changes no answer here.
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    user: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    include: list[str] | None = None
    max_tool_calls: int | None = None
    truncation: str | None = None
    # What is not there.
    top_logprobs: int | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    background: bool | None = None


def decoded(body: bytes, kind: type[_Request]) -> _Request:
    """Return a request of a kind from the body of an HTTP request.

    Raises
    ------
    RequestError
        If it is no JSON, or lacks or has what such a request must or cannot have.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        where = str(error).partition("`$.")[2].rstrip("`") or None
        raise RequestError(f"the request is wrong: {error}", param=where) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"the body is no JSON: {error}") from None
    except RecursionError:
        raise RequestError(
            "the body is no JSON that can be read: it is nested too deeply"
        ) from None
