"""Chats to text, by the Jinja template that a model brings.

Templates are programs from files that others wrote, so they run in Jinja's sandbox. Guaranteed: a
template reads nothing but the messages and variables of the call, as copies made of JSON values; it
reaches no attribute with an underscore, no file and no other template; its loop iterations and
calls are counted, and past 300,000 it ends with an error; so it does with a range of over
100,000, and where a text that it puts together or gives has more than 16 million characters. Not
guaranteed: the memory and the time of one filter, format or method of strings with a huge argument.
Whoever serves templates of strangers limits the process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import CodeType
from typing import Any, NoReturn

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.parser import Parser
from jinja2.runtime import Context, str_join
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from tensor_ops import TensorOpsError
from tensor_ops_decode.text.open_tokenizer import special_token_names
from tensor_ops_decode.text.tokenizer import Tokenizer
from tensor_ops_decode.weights.files import Weights
from tensor_ops_decode.weights.gguf import GgufFile
from tensor_ops_decode.weights.mapped_file import FileFormatError
from tensor_ops_decode.weights.safetensors import read_json

__all__ = ["ChatTemplate", "ChatTemplateError", "open_chat_template"]

MAX_STEPS = 300_000
MAX_LENGTH = 16_000_000
MAX_EXPONENT = 64


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
        self._code = _compiled(source)

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
        seen = json.loads(json.dumps(given))
        environment = _Environment()
        template = jinja2.Template.from_code(
            environment, self._code, environment.make_globals(None)
        )
        parts, length = [], 0
        try:
            for part in template.generate(seen):
                length += len(part)
                environment.check_length(length)
                parts.append(part)
        except Exception as error:
            raise ChatTemplateError(f"the chat template failed: {error}") from error
        return "".join(parts)


def open_chat_template(weights: Weights, tokenizer: Tokenizer) -> ChatTemplate | None:
    """Return the chat template of a model, or None if it brings none.

    Parameters
    ----------
    weights : GgufFile or SafetensorsFolder
    tokenizer : Tokenizer
        What `open_tokenizer` returned for them.

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
        source, names = (
            _folder_template(Path(weights.path)),
            special_token_names(Path(weights.path)),
        )
    if source is None:
        return None
    if not isinstance(source, str):
        raise FileFormatError(f"{weights.path}: expected a text as the chat template")
    return ChatTemplate(source, names)


def _gguf_token_names(file: GgufFile, tokenizer: Tokenizer) -> dict[str, str]:
    tokens = {"bos_token": tokenizer.bos, "eos_token": tokenizer.eos}
    for name, key in (("unk_token", "unknown"), ("pad_token", "padding")):
        tokens[name] = file.metadata.get(f"tokenizer.ggml.{key}_token_id")
    return {name: tokenizer.token(token) for name, token in tokens.items() if token is not None}


def _folder_template(folder: Path) -> object:
    path = folder / "chat_template.jinja"
    if path.exists():
        return path.read_text(encoding="utf-8")
    path = folder / "tokenizer_config.json"
    template = read_json(path).get("chat_template") if path.exists() else None
    if isinstance(template, list):  # several, by name
        named = {each.get("name"): each.get("template") for each in template if type(each) is dict}
        return named.get("default")
    return template


class _Generation(jinja2.ext.Extension):
    """The tag around what the model said, of which only training takes note."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), True), lineno=line)


class _Bounds(jinja2.ext.Extension):
    """What `_Bounding` puts into templates; calling it counts, as every call does."""

    def step(self) -> bool:
        return True

    def concatenate(self, *parts: object) -> str:
        return str_join(parts)


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja as transformers has it, which counts what one rendering does."""

    intercepted_binops = frozenset(["+", "*", "**"])

    def __init__(self) -> None:
        extensions = [jinja2.ext.loopcontrols, _Generation, _Bounds]
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
        self.filters["tojson"] = _tojson
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now
        self.globals["namespace"] = _Namespace
        self._steps = 0

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        __self._steps += 1
        if __self._steps > MAX_STEPS:
            raise SecurityError(f"it takes more than {MAX_STEPS} iterations and calls")
        result = super().call(__context, __obj, *args, **kwargs)
        if isinstance(result, str):
            __self.check_length(len(result))
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        lengths = [len(side) for side in (left, right) if hasattr(side, "__len__")]
        if lengths and operator == "+":
            self.check_length(sum(lengths))
        elif lengths and operator == "*":
            self.check_length(lengths[0] * (left if isinstance(left, int) else right))
        elif operator == "**" and abs(right) > MAX_EXPONENT:
            raise SecurityError(f"an exponent is over {MAX_EXPONENT}")
        elif operator == "*" and max(abs(left), abs(right)) > 1 << 64:
            raise SecurityError("a number is over 2**64")
        return super().call_binop(context, operator, left, right)

    def check_length(self, length: int) -> None:
        if length > MAX_LENGTH:
            raise SecurityError(f"a text or list has more than {MAX_LENGTH} elements")


class _Namespace(Namespace):
    """A namespace whose names cannot shadow what Python reads of an object."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        Namespace.__init__(*args, **kwargs)
        for name in dict(*args[1:], **kwargs):
            _check_name(name)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


class _Bounding(NodeTransformer):
    """Makes a template count its iterations, and concatenate with a check of the length."""

    def __init__(self, environment: _Environment) -> None:
        self._bounds = environment.extensions[_Bounds.identifier]

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802
        self.generic_visit(node)
        step = self._bounds.call_method("step", lineno=node.lineno)
        node.body.insert(0, nodes.ExprStmt(step, lineno=node.lineno))
        if node.test is not None:
            node.test = nodes.And(step, node.test, lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Call:  # noqa: N802
        self.generic_visit(node)
        return self._bounds.call_method("concatenate", list(node.nodes), lineno=node.lineno)


def _compiled(source: str) -> CodeType:
    environment = _Environment()
    try:
        tree = _Bounding(environment).visit(environment.parse(source))
        tree.set_environment(environment)
        return environment.compile(tree)
    except Exception as error:
        raise ChatTemplateError(f"the chat template is not valid: {error}") from error


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes the characters of HTML.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot have the name {name!r}")
