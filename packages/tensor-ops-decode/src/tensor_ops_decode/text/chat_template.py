"""Chats to text, by the Jinja template that a model brings.

Templates are programs from files that others wrote; `template_sandbox` says what bounds them.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.parser import Parser

from tensor_ops import TensorOpsError
from tensor_ops_decode.text.open_tokenizer import special_token_names
from tensor_ops_decode.text.template_sandbox import BoundedEnvironment
from tensor_ops_decode.text.tokenizer import Tokenizer
from tensor_ops_decode.weights.gguf import GgufFile
from tensor_ops_decode.weights.model_file import FileFormatError, read_model_text
from tensor_ops_decode.weights.safetensors import read_json_if_there
from tensor_ops_decode.weights.tensor import Weights

__all__ = ["ChatTemplate", "ChatTemplateError", "open_chat_template"]


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
            self._code = _environment().compiled(source)
        except Exception as error:
            raise ChatTemplateError(f"the chat template is not valid: {error}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> str:
        """Return the text of a chat, for `Tokenizer.encode` with special tokens parsed, none added.

        Parameters
        ----------
        messages : sequence of mapping
            Each has a ``role`` and ``content``; the template decides what else.
        add_generation_prompt : bool, default True
            Whether the text ends where the model's answer begins.
        tools, documents : sequence of mapping, optional
            For templates that take them; tools as JSON schemas.
        **variables
            What else the template is to see; JSON values, as all that it is given.

        Raises
        ------
        ChatTemplateError
            If the template raises, or does what it may not.
        TypeError
            If a message or variable is no JSON value.
        """
        given = {
            **self.variables,
            "messages": list(messages),
            "tools": tools,
            "documents": documents,
            "add_generation_prompt": add_generation_prompt,
            **variables,
        }
        try:
            seen = json.loads(json.dumps(given))
        except (ValueError, RecursionError) as error:
            raise TypeError(f"messages and variables must be JSON values: {error}") from error
        environment = _environment()
        template = jinja2.Template.from_code(
            environment, self._code, environment.make_globals(None)
        )
        try:
            return environment.joined(template.generate(seen))
        except Exception as error:
            raise ChatTemplateError(f"the chat template failed: {error}") from error


def open_chat_template(weights: Weights, tokenizer: Tokenizer) -> ChatTemplate | None:
    """Return the chat template of a model, or None if it brings none.

    The tokenizer is what `open_tokenizer` returned for the same weights.

    Raises
    ------
    FileFormatError
        If the template is not a text.
    ChatTemplateError
        If it is not a template.
    """
    if isinstance(weights, GgufFile):
        source = weights.metadata.get("tokenizer.chat_template")
        names = _gguf_token_names(weights, tokenizer)
    else:
        folder = Path(weights.path)
        source, names = _folder_template(folder), special_token_names(folder)
    if source is None:
        return None
    if not isinstance(source, str):
        raise FileFormatError(f"{weights.path}: expected a text as the chat template")
    return ChatTemplate(source, names)


def _gguf_token_names(file: GgufFile, tokenizer: Tokenizer) -> dict[str, str]:
    tokens = {"bos_token": tokenizer.bos, "eos_token": tokenizer.eos}
    for name, key in (("unk_token", "unknown"), ("pad_token", "padding")):
        tokens[name] = file.metadata.get(f"tokenizer.ggml.{key}_token_id")
    # Files may give a number that is no token for what the model does not have.
    known = {name: t for name, t in tokens.items() if type(t) is int and t in tokenizer}
    return {name: tokenizer.token(token) for name, token in known.items()}


def _folder_template(folder: Path) -> object:
    path = folder / "chat_template.jinja"
    if path.exists():
        return read_model_text(path)
    template = read_json_if_there(folder / "tokenizer_config.json").get("chat_template")
    if isinstance(template, list):  # several, by name
        named = {each.get("name"): each.get("template") for each in template if type(each) is dict}
        return named.get("default")
    return template


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
