"""The form that transformers gives to messages before a template sees them."""

import dataclasses
import inspect
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

__all__ = [
    "REASONING",
    "check_messages",
    "check_objects",
    "json_values",
    "listed",
    "seen_messages",
]

# By which names a message may have its reasoning; templates read the first, or the second.
REASONING = ("reasoning_content", "thinking", "reasoning")


def json_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a template is to see, as new JSON values.

    Mappings, dataclasses, and objects with a method ``model_dump`` (those of OpenAI's library)
    become objects, scalars of NumPy numbers. Anything else that is no JSON value is a TypeError.
    """
    try:
        values: dict[str, Any] = json.loads(json.dumps(given, default=_as_json))
    except (ValueError, RecursionError) as error:
        raise TypeError(f"messages and variables must be JSON values: {error}") from error
    return values


def _as_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if not isinstance(value, type) and callable(getattr(value, "model_dump", None)):
        return value.model_dump()
    if isinstance(value, np.generic):
        return value.item()
    if inspect.isroutine(value):
        raise TypeError(
            f"tools and variables must be JSON values, got the function {value.__name__}; give its "
            "JSON schema, which transformers.utils.get_json_schema(function) makes"
        )
    raise TypeError(
        "messages and variables must be JSON values, and an object of type "
        f"{type(value).__name__} is not JSON serializable"
    )


def listed(messages: Any) -> Any:
    """Return the messages of a sequence or an iterator as a list, and anything else as it is."""
    return list(messages) if isinstance(messages, Iterable) else messages


def check_messages(messages: Any) -> None:
    """Raise a ValueError unless a conversation has messages, a TypeError if one is no object."""
    check_objects("messages", messages)
    if not messages:
        raise ValueError("a conversation has at least one message, got none")


def check_objects(name: str, values: Any) -> None:
    """Raise a TypeError unless JSON values, such as the tools, are a list of objects."""
    expected = f"{name} must be a sequence of mappings"
    if not isinstance(values, list):
        raise TypeError(f"{expected}, got {values!r:.80}")
    for number, value in enumerate(values):
        if not isinstance(value, dict):
            raise TypeError(f"{expected}, but {name}[{number}] is {value!r:.80}")


def seen_messages(messages: Iterable[Any]) -> list[Any]:
    """Return messages as templates see them.

    Keys whose value is null are left out, and reasoning is there by each name that is read.
    """
    return [_seen(each) if isinstance(each, dict) else each for each in messages]


def _seen(given: dict[str, Any]) -> dict[str, Any]:
    message = {key: value for key, value in given.items() if value is not None}
    found = [message[name] for name in REASONING if name in message]
    if not found:
        return message
    return {"thinking": found[0], **message, "reasoning_content": found[0]}
