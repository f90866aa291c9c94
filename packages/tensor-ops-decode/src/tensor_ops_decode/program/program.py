"""A program: what one step of a model computes, as a plain value that prints and round-trips.

A program names its weights by file, tensor and type; it holds no arrays. Executors of every backend
read the same JSON.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from tensor_ops_decode.errors import ProgramError
from tensor_ops_decode.program.combined_nodes import from_version_1
from tensor_ops_decode.program.node_rules import InferredValue, check_names
from tensor_ops_decode.program.records import (
    Cache,
    Draft,
    Limits,
    Node,
    Parts,
    State,
    Tensor,
    Value,
)
from tensor_ops_decode.program.rules import check_program

__all__ = [
    "Cache",
    "Draft",
    "Limits",
    "Node",
    "Program",
    "State",
    "Tensor",
    "Value",
    "of_checked_nodes",
]

FORMAT, VERSION = "tensor-ops program", 2


@dataclass(frozen=True)
class Program(Parts):
    """A whole program, valid once it is made.

    Attributes
    ----------
    limits : Limits
    tensors, caches, values : mapping
    nodes : tuple of Node
        In the order in which they run.
    outputs : tuple of str
        The values that a caller may read after a step.
    draft : Draft or None
        The nodes that guess tokens, if there are some.

    Examples
    --------
    >>> from tensor_ops_decode.program import Limits, Program
    >>> program = Program(Limits(1, 1, 1, 64, 16, 4), {}, {}, {}, (), ())
    >>> Program.from_json(program.to_json()) == program
    True
    """

    def __post_init__(self) -> None:
        check_program(self)

    def to_json(self) -> str:
        """Return the program as the JSON that executors read."""
        whole = {"format": FORMAT, "version": VERSION, **_fields_of(self)}
        return json.dumps(whole, default=_fields_of)

    @staticmethod
    def from_json(text: str | bytes) -> Program:
        """Return the program that `to_json` wrote, now or as version 1.

        Raises
        ------
        ProgramError
            If it is not one.
        """
        try:
            data = _parsed(text.decode() if isinstance(text, (bytes, bytearray)) else text)
        except (ValueError, RecursionError) as error:
            raise ProgramError(f"program: not valid JSON: {error}") from error
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ProgramError(f"program: no JSON object whose format is {FORMAT!r}")
        version = data.get("version")
        if type(version) is not int or version not in (1, VERSION):
            raise ProgramError(
                f"program: version must be {VERSION}, got {version!r}; write it again with this "
                f"release"
            )
        data = {key: value for key, value in data.items() if key not in ("format", "version")}
        parts: Parts = _typed("program", data, Parts)
        return Program(**vars(from_version_1(parts) if version == 1 else parts))

    def without_draft(self) -> Program:
        """Return the program without the nodes that guess tokens, and what only they use."""
        if self.draft is None:
            return self
        nodes = self.nodes[: self.num_step_nodes]
        values = {name for node in nodes for name in node.outputs.values()}
        tensors = {name for node in nodes for of in node.weights.values() for name in of}
        caches = {node.attributes.get("cache") for node in nodes}
        return replace(
            self,
            tensors={name: each for name, each in self.tensors.items() if name in tensors},
            caches={name: each for name, each in self.caches.items() if name in caches},
            values={name: each for name, each in self.values.items() if name in values},
            nodes=nodes,
            outputs=tuple(each for each in self.outputs if each in values - {self.draft.hidden}),
            draft=None,
        )

    def __str__(self) -> str:
        lines = []
        for node in self.nodes:
            words = [f"{slot}={value}" for slot, value in node.inputs.items()]
            words += [f"{slot}={'+'.join(names)}" for slot, names in node.weights.items()]
            words += [f"{name}={value}" for name, value in node.attributes.items()]
            results = [(name, self.values[name]) for name in node.outputs.values()]
            written = ", ".join(f"{name} [{of.rows}, {of.columns}]" for name, of in results)
            lines.append(f"{written} = {node.kind}({', '.join(words)})")
        return "\n".join(lines)


def of_checked_nodes(parts: Parts, inferred: Mapping[str, InferredValue]) -> Program:
    """Return the program of nodes that were checked one by one, and what they write, by name."""
    program = object.__new__(Program)  # without its __post_init__, which checks each node
    vars(program).update(vars(parts))
    check_program(program, inferred)
    return program


def _typed(where: str, data: Any, hint: Any) -> Any:
    """Return JSON data as what a type annotation says: a record, a mapping, a tuple, a value."""
    origin = get_origin(hint)
    if origin is UnionType:
        hint = _one_of(data, get_args(hint))
    if isinstance(hint, type) and is_dataclass(hint):
        _require(where, data, dict, "an object")
        keys = {field.name: field.default is not MISSING for field in fields(hint)}
        check_names(where, "key", keys, data)
        hints = _hints(hint)
        made = {key: _typed(f"{where}: {key}", value, hints[key]) for key, value in data.items()}
        return hint(**made)
    if origin is Mapping:
        _require(where, data, dict, "an object")
        each = get_args(hint)[1]
        return {key: _typed(f"{where}: {key!r}", value, each) for key, value in data.items()}
    if origin is tuple:
        _require(where, data, list, "a list")
        each = get_args(hint)[0]
        return tuple(_typed(f"{where}[{index}]", value, each) for index, value in enumerate(data))
    if hint in (int, str, bool):
        _require(where, data, hint, f"of type {hint.__name__}")
    return data


_hints = functools.cache(get_type_hints)


def _one_of(data: Any, hints: tuple[Any, ...]) -> Any:
    """Return the first of several records that has all keys of JSON data, or else the first."""
    keys = set(data) if isinstance(data, dict) else set()
    fitting = [
        each for each in hints if is_dataclass(each) and keys <= {f.name for f in fields(each)}
    ]
    return (*fitting, hints[0])[0]


def _require(where: str, data: object, type_: type, expected: str) -> None:
    if not isinstance(data, type_) or (isinstance(data, bool) and type_ is int):
        raise ProgramError(f"{where} must be {expected}, got {data!r}")


def _fields_of(record: Any) -> dict[str, Any]:
    """Return the fields of a record as JSON has them, without those that have their default."""
    kind: Any = type(record)
    values = {name: (getattr(record, name), default) for name, default in _defaults(kind)}
    return {name: value for name, (value, default) in values.items() if value != default}


@functools.cache
def _defaults(kind: Any) -> list[tuple[str, Any]]:
    return [(field.name, field.default) for field in fields(kind)]


def _parsed(text: str) -> Any:
    """Return JSON data, or raise a ValueError where Python takes more than JSON allows."""
    data = json.loads(
        text,
        object_pairs_hook=_without_duplicates,
        parse_constant=_finite,
        parse_float=_finite,
    )
    json.dumps(data, ensure_ascii=False).encode()  # half of a surrogate pair is no character
    return data


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"number out of range: {text:.40}")
    return number


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {key!r} given twice")
        found[key] = value
    return found
