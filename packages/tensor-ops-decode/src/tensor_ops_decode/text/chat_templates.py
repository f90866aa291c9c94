"""The chat templates of a model, of which a folder or a GGUF file may have several by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensor_ops_decode.text.chat_template import ChatTemplate
from tensor_ops_decode.text.special_tokens_map import (
    special_token_names,
    special_token_names_of_gguf,
)
from tensor_ops_decode.text.tokenizer import Tokenizer
from tensor_ops_decode.weights.gguf import GgufFile
from tensor_ops_decode.weights.model_file import FileFormatError, is_there, read_model_text
from tensor_ops_decode.weights.safetensors import read_json_if_there
from tensor_ops_decode.weights.tensor import Weights

__all__ = ["ChatTemplates", "open_chat_templates"]

_GGUF_KEY = "tokenizer.chat_template"


class ChatTemplates:
    """The chat templates of a model, the `sources`, by name; one that has no name is ``"default"``.

    The `path` is the model's, for errors, and the `variables` are what every rendering sees, such
    as ``bos_token``.
    """

    def __init__(self, path: str, sources: Mapping[str, str], variables: Mapping[str, str]) -> None:
        self.path = path
        self.sources = dict(sources)
        self.variables = dict(variables)

    def chosen(self, name: str | None = None, *, has_tools: bool = False) -> ChatTemplate:
        """Return a template, compiled.

        The name may also be a template itself, in Jinja. By default it is ``"tool_use"`` if the
        template is to see tools and the model has it, or else ``"default"``. Raises ValueError if
        there is none of this name, or no default, and a ChatTemplateError if it is not a template.
        """
        if not isinstance(name, (str, type(None))):
            raise TypeError(
                f"chat_template must be the name of a template, or its text, got {name!r:.80}"
            )
        by_default = "tool_use" if has_tools and "tool_use" in self.sources else "default"
        chosen = by_default if name is None else name
        if chosen in self.sources:
            return ChatTemplate(self.sources[chosen], self.variables)
        if "{{" in chosen or "{%" in chosen:
            return ChatTemplate(chosen, self.variables)
        way = "by chat_template=, --chat-template in the shell"
        if not self.sources:
            given = "" if name is None else f"; got the name {name!r:.80}"
            raise ValueError(
                f"{self.path}: the model has no chat template{given}; give it a plain prompt, or "
                f"the text of a template {way}"
            )
        raise ValueError(
            f"{self.path}: the model has no chat template of the name {chosen!r:.80}; choose one "
            f"of {', '.join(map(repr, sorted(self.sources)))} {way}, or give the text of a "
            "template there"
        )


def open_chat_templates(weights: Weights, tokenizer: Tokenizer) -> ChatTemplates:
    """Return the chat templates of a model; a FileFormatError says which of them is not a text.

    The tokenizer is what `open_tokenizer` returned for the same weights.
    """
    if isinstance(weights, GgufFile):
        sources = _of_gguf(weights)
        variables = special_token_names_of_gguf(weights, tokenizer)
    else:
        folder = Path(weights.path)
        sources, variables = _of_folder(folder), special_token_names(folder, tokenizer.pad_token)
    for name, source in sources.items():
        if not isinstance(source, str):
            raise FileFormatError(
                f"{weights.path}: expected a text as the chat template {name!r:.80}, "
                f"got {source!r:.80}"
            )
    return ChatTemplates(weights.path, sources, variables)


def _of_gguf(file: GgufFile) -> dict[str, Any]:
    named = {
        key.removeprefix(f"{_GGUF_KEY}."): value
        for key, value in file.metadata.items()
        if key.startswith(f"{_GGUF_KEY}.")
    }
    default = file.metadata.get(_GGUF_KEY)
    return named if default is None else named | {"default": default}


def _of_folder(folder: Path) -> dict[str, Any]:
    """Return the templates in files of their own, or else those in tokenizer_config.json."""
    named, default = folder / "additional_chat_templates", folder / "chat_template.jinja"
    files = {path.stem: path for path in named.glob("*.jinja")} if is_there(named) else {}
    if is_there(default):
        files.setdefault("default", default)
    if files:
        return {name: read_model_text(path) for name, path in files.items()}
    path = folder / "tokenizer_config.json"
    given = read_json_if_there(path).get("chat_template")
    if isinstance(given, list):
        if not all(isinstance(each, dict) and type(each.get("name")) is str for each in given):
            raise FileFormatError(
                f"{path}: expected objects with a name and a template as chat_template, "
                f"got {given!r:.80}"
            )
        return {each["name"]: each.get("template") for each in given}
    if given is None or isinstance(given, dict):
        return given or {}
    return {"default": given}
