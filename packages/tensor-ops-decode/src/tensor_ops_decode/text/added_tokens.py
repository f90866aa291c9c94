"""The tokens that the other files of a folder add to its tokenizer.json, as transformers 5 does it.

`added_tokens_decoder` of tokenizer_config.json wins over tokenizer.json: its flags replace those of
a token that is there already. Where it is missing, added_tokens.json and special_tokens_map.json
count. The special tokens that have a name and those of `extra_special_tokens` are added if no other
file has them. The numbers that files give do not count: what is new comes last.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import tokenizers

from tensor_ops_decode.weights.safetensors import read_json_if_there

__all__ = ["add_tokens"]

_Token: TypeAlias = dict[str, Any]

# The names that every model may have, in the order in which their tokens are added.
_STANDARD = [f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")]
_FLAGS = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")


def add_tokens(tokenizer: tokenizers.Tokenizer, folder: Path, names: Mapping[str, str]) -> None:
    """Let a tokenizer find the tokens that the files of its folder add, with the flags given there.

    Parameters
    ----------
    tokenizer : tokenizers.Tokenizer
        That of tokenizer.json, which is changed.
    folder : Path
    names : mapping of str to str
        The special tokens by the names that chat templates see, such as ``bos_token``.

    Raises
    ------
    FileFormatError
        If a file cannot be read.
    ValueError
        If it describes a token neither by its text nor by an object with its text and its flags.
    """
    config = read_json_if_there(folder / "tokenizer_config.json")
    has_decoder = "added_tokens_decoder" in config
    legacy = {} if has_decoder else read_json_if_there(folder / "special_tokens_map.json")
    standard = [names[key] for key in _STANDARD if key in names]
    extra = _extra(config, legacy)
    own = {n: each.__getstate__() for n, each in tokenizer.get_added_tokens_decoder().items()}
    if has_decoder:
        numbered = _decoder(config["added_tokens_decoder"])
    else:
        special = {*standard, *(token["content"] for token in extra)}
        numbered = {
            number: {"content": name, "special": name in special}
            for name, number in read_json_if_there(folder / "added_tokens.json").items()
        } | own
    tokens = [numbered[number] for number in sorted(numbered)]
    there = {token["content"] for token in [*own.values(), *tokens]}
    objects = [value for value in {**config, **legacy}.values() if isinstance(value, dict)]
    flags = {value.get("content"): value for value in objects if "content" in value}
    named = dict.fromkeys([*standard, *names.values()])
    others = [*(_token(flags.get(name, name)) for name in named), *extra]
    tokens += [token for token in others if token["content"] not in there]
    # The library leaves out of texts what was special once, whatever the flag says later.
    kept = {token["content"] for token in own.values() if token["special"]}
    for token in tokens:
        if token["content"] in named:
            token["special"] = True
        elif token["content"] in kept:
            token.setdefault("normalized", not token["special"])
            token["special"] = True
    tokenizer.add_tokens([tokenizers.AddedToken(**token) for token in tokens])


def _decoder(value: object) -> dict[int, _Token]:
    """Return the tokens of `added_tokens_decoder` by their numbers."""
    if not isinstance(value, dict):
        raise ValueError(f"added_tokens_decoder is {value!r:.80}; expected an object")
    return {int(number): _token(each) for number, each in value.items()}


def _extra(config: Mapping[str, Any], legacy: Mapping[str, Any]) -> list[_Token]:
    """Return the special tokens that have no name."""
    first = config.get("extra_special_tokens") or config.get("additional_special_tokens")
    second = legacy.get("extra_special_tokens")
    if not isinstance(first, list) and not isinstance(second, list):
        second = legacy.get("additional_special_tokens")
    tokens = [_token(value) for value in first] if isinstance(first, list) else []
    others = second if isinstance(second, list) else []
    return [*tokens, *(_token(value) | {"special": True} for value in others)]


def _token(value: object) -> _Token:
    """Return a token that a file describes by its text alone, or with its flags."""
    if isinstance(value, str):
        return {"content": value, "special": True}
    if not isinstance(value, dict) or not isinstance(value.get("content"), str):
        raise ValueError(f"a token is {value!r:.80}; expected a text, or an object with `content`")
    return {"special": False} | {name: value[name] for name in _FLAGS if name in value}
