"""What a model's answers are made of, by the format that its chat template writes."""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tensor_ops_decode.serving.formats.answer_parser import AnswerParser, begins_in_reasoning
from tensor_ops_decode.serving.formats.call_syntax import CallSyntax, ChannelSyntax, ReasoningSyntax
from tensor_ops_decode.serving.formats.tool_grammar import SchemaGrammar, ToolGrammar, marks_of

if TYPE_CHECKING:
    from tensor_ops_decode.text import Tokenizer

__all__ = ["AnswerFormat"]


@dataclass(frozen=True)
class AnswerFormat:
    """How the answers of a model have calls of tools and reasoning; `answer_format` finds it.

    Attributes
    ----------
    tool_calls : CallSyntax, ChannelSyntax or None
        None if the template writes no calls.
    reasoning : ReasoningSyntax, ChannelSyntax or None
        None if the model has no reasoning that its template knows of.
    has_text_arguments : bool
        Whether the template wants the arguments of calls in messages as JSON text, not as objects.
    has_named_ids : bool
        Whether the ids of calls are ``functions.NAME:INDEX``, and models read them.
    """

    tool_calls: CallSyntax | ChannelSyntax | None = None
    reasoning: ReasoningSyntax | ChannelSyntax | None = None
    has_text_arguments: bool = False
    has_named_ids: bool = False

    def parser(
        self, tools: Sequence[Mapping[str, Any]] | None = None, prompt: str = ""
    ) -> AnswerParser:
        """Return what parses one answer.

        Parameters
        ----------
        tools : sequence of mapping, optional
            Tools that may be called, as OpenAI has them. Without any, calls are text.
        prompt : str
            The text that the template wrote, whose end may have begun reasoning.
        """
        calls, reasoning = self.tool_calls, self.reasoning
        channels = reasoning if isinstance(reasoning, ChannelSyntax) else None
        return AnswerParser(
            calls=calls if isinstance(calls, CallSyntax) else None,
            reasoning=reasoning if isinstance(reasoning, ReasoningSyntax) else None,
            channels=channels,
            tools=tools if tools and calls is not None else (),
            prompt=prompt,
        )

    def begins_in_reasoning(self, prompt: str) -> bool:
        """Return whether an answer to a prompt begins within reasoning that the prompt began."""
        reasoning = self.reasoning
        return isinstance(reasoning, ReasoningSyntax) and begins_in_reasoning(reasoning, prompt)

    def visible_tokens(self, tokenizer: Tokenizer) -> frozenset[int]:
        """Return the special tokens whose names the text of an answer must have, to be parsed."""
        found: set[int] = set()
        for mark in marks_of(self.tool_calls, self.reasoning):
            for start, end in tokenizer.special_names.places(mark):
                tokens = tokenizer.encode(
                    mark[start:end], add_special_tokens=False, parse_special_tokens=True
                )
                found.update(filter(tokenizer.is_special, tokens))
        return frozenset(found) - tokenizer.end_tokens

    def grammar(
        self,
        tools: Sequence[Mapping[str, Any]],
        *,
        name: str | None = None,
        parallel: bool = True,
        prompt: str = "",
        tokenizer: Tokenizer | None = None,
    ) -> str:
        """Return a grammar, in the variant of Lark that llguidance reads, for answers with a call.

        Reasoning may come first, unless the prompt has ended it. The arguments are valid by the
        tool's schema, with two exceptions. Of a text that the format has without quotes, only the
        length, `enum` and `const` are kept. Where the format has keys without quotes, so are only
        types, `properties` and `required` of what is inside an object or a list.

        Parameters
        ----------
        tools : sequence of mapping
            As of `parser`.
        name : str, optional
            Which tool is called; any by default.
        parallel : bool, default True
            Whether there may be several calls, if the template writes more than one.
        prompt : str
            As of `parser`.
        tokenizer : Tokenizer, optional
            Whose special tokens the marks have; without, all marks are text.

        Raises
        ------
        ValueError
            If the format has no calls, or no tool has the name.
        """
        if self.tool_calls is None:
            raise ValueError("the chat template of the model writes no calls of tools")
        writer = ToolGrammar(self.tool_calls, tools, name, tokenizer)
        reasoning = self.reasoning
        has_ended = isinstance(reasoning, ReasoningSyntax) and _ends_with(prompt, reasoning.end)
        return writer.text(
            None if has_ended else reasoning,
            parallel=parallel,
            is_in_reasoning=self.begins_in_reasoning(prompt),
        )

    def schema_grammar(
        self, schema: Mapping[str, Any], prompt: str, tokenizer: Tokenizer
    ) -> str | None:
        """Return a grammar for JSON behind the reasoning that a prompt has begun.

        None if it has begun none, so that the answer is the JSON alone.
        """
        reasoning = self.reasoning
        if not isinstance(reasoning, ReasoningSyntax) or not self.begins_in_reasoning(prompt):
            return None
        return SchemaGrammar(tokenizer).text(reasoning, schema)

    def call_id(self, name: str, index: int) -> str:
        """Return an id for a call: nine letters and digits, as the templates of Mistral want."""
        if self.has_named_ids:
            return f"functions.{name}:{index}"
        letters = string.ascii_letters + string.digits
        return "".join(secrets.choice(letters) for _ in range(9))

    def seen_messages(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return messages with the arguments of their calls in the form that the template wants.

        Clients give them as JSON text. A text that is none stays as it is.
        """
        return [self._seen(message) for message in messages]

    def _seen(self, message: Mapping[str, Any]) -> dict[str, Any]:
        calls = message.get("tool_calls")
        if not isinstance(calls, list):
            return dict(message)
        return {**message, "tool_calls": [self._seen_call(call) for call in calls]}

    def _seen_call(self, call: Any) -> Any:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            return call
        given = function.get("arguments")
        if self.has_text_arguments and isinstance(given, Mapping):
            given = json.dumps(given, ensure_ascii=False)
        elif not self.has_text_arguments and isinstance(given, str):
            try:
                given = json.loads(given or "{}")
            except (ValueError, RecursionError):
                return call
        return {**call, "function": {**function, "arguments": given}}


def _ends_with(prompt: str, mark: str) -> bool:
    return prompt.rstrip().endswith(mark.strip())
