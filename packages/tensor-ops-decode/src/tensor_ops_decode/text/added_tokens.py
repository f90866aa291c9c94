"""The tokens that the other files of a folder add to its tokenizer.json, as transformers 5 does it.

`added_tokens_decoder` of tokenizer_config.json wins over tokenizer.json: its flags replace those of
a token that is there already. Where it is missing, added_tokens.json and special_tokens_map.json
count. The special tokens that have a name and those of `extra_special_tokens` are added if no other
file has them. The numbers that files give do not count: what is new comes last.
"""

from collections.abc import Mapping, Set
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

    `tokenizer` is that of tokenizer.json, which is changed, and `names` has the special tokens by
    the names that chat templates see, such as ``bos_token``. An error is raised if a file cannot be
    read, or describes a token neither by its text nor by an object with its text and its flags.
    """
    config = read_json_if_there(folder / "tokenizer_config.json")
    has_decoder = "added_tokens_decoder" in config
    legacy = {} if has_decoder else read_json_if_there(folder / "special_tokens_map.json")
    present = {
        number: token.__getstate__()
        for number, token in tokenizer.get_added_tokens_decoder().items()
    }
    standard = [names[f"{key}_token"] for key in STANDARD if f"{key}_token" in names]
    named, extra = [*dict.fromkeys([*standard, *names.values()])], _extra(config, legacy)
    if has_decoder:
        numbered = _decoder(config["added_tokens_decoder"])
    else:
        special = {*standard, *(token["content"] for token in extra)}
        numbered = _of_added_tokens_file(folder, special) | present
    tokens = [numbered[number] for number in sorted(numbered)]
    known = {token["content"] for token in [*present.values(), *tokens]}
    flags = _flags_by_content({**config, **legacy})
    others = [*(_token(flags.get(name, name)) for name in named), *extra]
    tokens += [token for token in others if token["content"] not in known]
    were_special = {token["content"] for token in present.values() if token["special"]}
    _mark_special(tokens, set(named), were_special)
    tokenizer.add_tokens([tokenizers.AddedToken(**token) for token in tokens])


def _of_added_tokens_file(folder: Path, special: Set[str]) -> dict[int, _Token]:
    """Return the tokens of added_tokens.json by their numbers."""
    return {
        number: {"content": name, "special": name in special}
        for name, number in read_json_if_there(folder / "added_tokens.json").items()
    }


def _flags_by_content(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that describe a token by an object, by the text of the token."""
    objects = [value for value in settings.values() if isinstance(value, dict)]
    return {value["content"]: value for value in objects if "content" in value}


def _mark_special(tokens: list[_Token], named: Set[str], were_special: Set[str]) -> None:
    """Make those tokens special that have a name, or were special before."""
    for token in tokens:
        if token["content"] in named:
            token["special"] = True
        elif token["content"] in were_special:
            # The library leaves it out of texts whatever the flag says now.
            token.setdefault("normalized", not token["special"])
            token["special"] = True


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
