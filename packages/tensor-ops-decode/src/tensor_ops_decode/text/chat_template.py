"""Chats to text, by the Jinja template that a model brings.

Templates are programs from files that others wrote; `template_sandbox` says what bounds them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from types import CodeType
from typing import Any, NoReturn

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.parser import Parser

from tensor_ops import TensorOpsError
from tensor_ops_decode.text.chat_messages import json_values, seen_messages
from tensor_ops_decode.text.final_message import FinalMessage
from tensor_ops_decode.text.template_sandbox import BoundedEnvironment

__all__ = ["ChatTemplate", "ChatTemplateError"]


class ChatTemplateError(TensorOpsError, ValueError):
    """A chat template is not valid, refuses its messages, or does what it may not."""


class ChatTemplate:
    """A chat template, compiled.

    Parameters
    ----------
    source : str
        The template, in Jinja with what transformers adds to it.
    variables : mapping, optional
        What every rendering sees, such as ``bos_token``.

    Raises
    ------
    ChatTemplateError
        If it is not a template.

    Examples
    --------
    >>> template = ChatTemplate("{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}")
    >>> template.render([{"role": "user", "content": "Hello"}])
    'user: Hello'
    """

    def __init__(self, source: str, variables: Mapping[str, str] | None = None) -> None:
        self.source = source
        self.variables = dict(variables or {})
        try:
            self._code = _compiled(source)
        except Exception as error:
            raise ChatTemplateError(f"the chat template is not valid: {error}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool | str = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> str:
        """Return the text of a chat, for `Tokenizer.encode` with special tokens parsed, none added.

        The messages and what else the template is to see are as of `Model.chat_prompt`, with tools
        as JSON schemas. By default the text ends where the model's answer begins, unless it ends
        with what the final message says, or has under the key `continue_final_message`.

        Raises ChatTemplateError if the template raises, or does what it may not; a ValueError if
        the final message has no text to continue; and a TypeError if a message or variable is no
        JSON value.
        """
        if add_generation_prompt is None:
            add_generation_prompt = not continue_final_message
        elif add_generation_prompt and continue_final_message:
            raise ValueError(
                "continue_final_message ends the text within a message, and add_generation_prompt "
                "where another begins; give one of the two"
            )
        given = {
            **self.variables,
            "messages": list(messages),
            "tools": tools,
            "documents": documents,
            "add_generation_prompt": add_generation_prompt,
            **variables,
        }
        seen = json_values(given)
        seen["messages"] = seen_messages(seen["messages"])
        if not continue_final_message:
            return self._rendered(seen, str)
        field = continue_final_message if isinstance(continue_final_message, str) else "content"
        return self._rendered(seen, FinalMessage(seen["messages"], field, self.source).cut)

    def _rendered(self, seen: dict[str, Any], cut: Callable[[str], str]) -> str:
        environment = _environment()
        template = jinja2.Template.from_code(
            environment, self._code, environment.make_globals(None)
        )
        try:
            return cut(environment.joined(template.generate(seen)))
        except Exception as error:
            raise ChatTemplateError(f"the chat template failed: {error}") from error


@lru_cache(maxsize=16)
def _compiled(source: str) -> CodeType:
    return _environment().compiled(source)


def _environment() -> BoundedEnvironment:
    """Return what transformers lets templates use."""
    return BoundedEnvironment(
        extensions=[jinja2.ext.loopcontrols, _Generation],
        filters={"tojson": _tojson},
        functions={"raise_exception": _raise_exception, "strftime_now": _strftime_now},
    )


class _Generation(jinja2.ext.Extension):
    """The tag around what the model said, which only training reads."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), True), lineno=line)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes the characters of HTML.
    if indent is not None and not 0 <= int(indent) <= 16:
        raise SecurityError("tojson indents by 0 to 16 spaces")
    if separators is not None and max(map(len, separators)) > 16:
        raise SecurityError("tojson separates by at most 16 characters")
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    if len(form) > 1000:
        raise SecurityError("the form of a date has more than 1000 characters")
    return datetime.now().strftime(form)
