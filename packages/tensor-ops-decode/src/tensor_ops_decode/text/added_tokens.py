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

from tensor_ops_decode.text.special_tokens_map import STANDARD
from tensor_ops_decode.weights.safetensors import read_json_if_there

__all__ = ["add_tokens"]

_Token: TypeAlias = dict[str, Any]

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
    standard = [names[f"{key}_token"] for key in STANDARD if f"{key}_token" in names]
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
    """Return the special tokens that have no name.

    The older of two keys counts where the newer one is missing or an object, whose tokens have
    names, and in the configuration where the newer one has no tokens.
    """
    newer, older = "extra_special_tokens", "additional_special_tokens"
    given = {key: config[key] for key in (newer, older) if key in config}
    if older in given and not given.get(newer):
        given[newer] = given.pop(older)
    found = {key: _tokens(value) for key, value in given.items() if not isinstance(value, dict)}
    if newer in legacy:
        found[newer] = [*found.get(newer, []), *_special(_tokens(legacy[newer]))]
    if isinstance(legacy.get(newer), dict):
        del found[newer]
    if older in legacy:
        found[older] = _special(_tokens(legacy[older]))
    return found.get(newer, found.get(older, []))


def _tokens(values: object) -> list[_Token]:
    return [_token(value) for value in values] if isinstance(values, list) else []


def _special(tokens: list[_Token]) -> list[_Token]:
    return [token | {"special": True} for token in tokens]


def _token(value: object) -> _Token:
    """Return a token that a file describes by its text alone, or with its flags."""
    if isinstance(value, str):
        return {"content": value, "special": True}
    if not isinstance(value, dict) or not isinstance(value.get("content"), str):
        raise ValueError(f"a token is {value!r:.80}; expected a text, or an object with `content`")
    return {"special": False} | {name: value[name] for name in _FLAGS if name in value}
