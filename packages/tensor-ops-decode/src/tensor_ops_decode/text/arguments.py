"""Arguments that are text: prompts, messages and stop strings, checked before any work."""

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

__all__ = [
    "Prompt",
    "check_texts",
    "checked_prompt",
    "checked_strings",
    "listed_prompts",
    "texts_in",
]

Prompt = str | Sequence[int]


def _check_text(name: str, text: str) -> None:
    """Raise a ValueError if a text has a lone surrogate, which no encoding has."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name} has a lone surrogate, U+{ord(text[error.start]):04X}, at character "
            f"{error.start}, which is half of a character or a byte that was no UTF-8; decode what "
            "the text was read from with errors='replace'"
        ) from None


def check_texts(given: Mapping[str, Any]) -> None:
    """Raise a ValueError if a text in JSON values, such as messages, has a lone surrogate."""
    for name, text in texts_in(given):
        _check_text(name, text)


def texts_in(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each text in JSON values; keys of objects are texts too."""
    waiting: list[tuple[str, Any]] = list(given.items())
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, dict):
            for key, each in value.items():
                yield f"a key of {name}", key
                waiting.append((f"{name}[{key!r}]", each))
        elif isinstance(value, list):
            waiting += [(f"{name}[{index}]", each) for index, each in enumerate(value)]


def checked_strings(name: str, given: Any) -> tuple[str, ...]:
    """Return the strings of an argument, one or several: none is empty or has a lone surrogate."""
    expected = f"{name} must be a string or a sequence of strings, got {given!r:.80}"
    if isinstance(given, (bytes, Mapping)) or not isinstance(given, Iterable):
        raise TypeError(expected)
    strings = (given,) if isinstance(given, str) else tuple(given)
    for number, each in enumerate(strings):
        if not isinstance(each, str):
            raise TypeError(f"{expected}; {name}[{number}] is {each!r:.80}")
        if not each:
            raise ValueError(f"{name} must be strings that are not empty, got {given!r:.80}")
        _check_text(name if isinstance(given, str) else f"{name}[{number}]", each)
    return strings


def listed_prompts(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """Return a list of prompts; a single prompt makes a list of one."""
    if isinstance(prompts, str):
        return [prompts]
    listed = _listed("prompts must be texts", prompts)
    return [listed] if listed and all(map(_is_token, listed)) else listed


def checked_prompt(name: str, prompt: Any) -> str | list[int]:
    """Return a prompt, its token ids as a list; errors of a text call it by the `name`."""
    if isinstance(prompt, str):
        _check_text(name, prompt)
        return prompt
    tokens = _listed("a prompt must be a text", prompt)
    if not all(map(_is_token, tokens)):
        raise TypeError(f"a prompt must be a text or token ids, got {tokens!r:.80}")
    return [operator.index(token) for token in tokens]


def _listed(expected: str, given: Any) -> list[Any]:
    if isinstance(given, (bytes, Mapping, Set)) or not isinstance(given, Iterable):
        raise TypeError(f"{expected} or token ids, got {given!r:.80}")
    return list(given)


def _is_token(value: Any) -> bool:
    """Return whether a value is an integer of Python, or of a library of arrays."""
    if isinstance(value, bool) or getattr(value, "ndim", None):
        return False
    try:
        operator.index(value)
    except Exception:  # an object's own method may raise anything
        return False
    return True
