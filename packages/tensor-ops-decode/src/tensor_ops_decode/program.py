"""A program: what one step of a model computes, as a plain value that prints and round-trips.

A program names its weights by file, tensor and type; it holds no arrays. Executors of every backend
read the same JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, get_type_hints

from tensor_ops_decode.errors import ProgramError
from tensor_ops_decode.program_records import Cache, Limits, Node, Tensor, Value
from tensor_ops_decode.program_rules import check_names, check_program

__all__ = ["Cache", "Limits", "Node", "Program", "Tensor", "Value"]

FORMAT, VERSION = "tensor-ops program", 1


@dataclass(frozen=True)
class Program:
    """A whole program, valid once it is made.

    Attributes
    ----------
    limits : Limits
    tensors, caches, values : mapping
    nodes : tuple of Node
        In the order in which they run.
    outputs : tuple of str
        The values that a caller may read after a step.

    Examples
    --------
    >>> from tensor_ops_decode.program import Limits, Program
    >>> program = Program(Limits(1, 1, 1, 64, 16, 4), {}, {}, {}, (), ())
    >>> Program.from_json(program.to_json()) == program
    True
    """

    limits: Limits
    tensors: Mapping[str, Tensor]
    caches: Mapping[str, Cache]
    values: Mapping[str, Value]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]

    def __post_init__(self) -> None:
        check_program(self)

    def to_json(self) -> str:
        """Return the program as the JSON that executors read."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)})

    @staticmethod
    def from_json(text: str | bytes) -> Program:
        """Return the program that `to_json` wrote.

        Raises
        ------
        ProgramError
            If it is not one.
        """
        try:
            data = json.loads(text, object_pairs_hook=_without_duplicates)
        except (ValueError, RecursionError) as error:
            raise ProgramError(f"program: not valid JSON: {error}") from error
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ProgramError(f"program: no JSON object whose format is {FORMAT!r}")
        if data.get("version") != VERSION:
            raise ProgramError(
                f"program: version must be {VERSION}, got {data.get('version')!r}; write it again "
                f"with this release"
            )
        data = {key: value for key, value in data.items() if key not in ("format", "version")}
        read = _record(Program, "program", data)
        return Program(
            _record(Limits, "limits", read["limits"], make=True),
            _records(Tensor, "tensor", read["tensors"]),
            _records(Cache, "cache", read["caches"]),
            _records(Value, "value", read["values"]),
            tuple(_record(Node, "node", each, make=True) for each in _list("nodes", read["nodes"])),
            tuple(_list("outputs", read["outputs"])),
        )

    def __str__(self) -> str:
        lines = []
        for node in self.nodes:
            words = [f"{slot}={value}" for slot, value in node.inputs.items()]
            words += [f"{slot}={'+'.join(names)}" for slot, names in node.weights.items()]
            words += [f"{name}={value}" for name, value in node.attributes.items()]
            value = self.values[node.outputs["output"]]
            result = f"{node.outputs['output']} [{value.rows}, {value.columns}]"
            lines.append(f"{result} = {node.kind}({', '.join(words)})")
        return "\n".join(lines)


def _record(cls: Any, where: str, data: object, *, make: bool = False) -> Any:
    """Return the fields of a JSON object for a dataclass, or with `make` one of it."""
    if not isinstance(data, dict):
        raise ProgramError(f"{where} must be an object, got {data!r}")
    check_names(where, "key", {field.name: False for field in fields(cls)}, data)
    if not make:
        return data
    hints = get_type_hints(cls)
    return cls(**{key: _frozen(value, str(hints[key])) for key, value in data.items()})


def _frozen(value: object, hint: str) -> object:
    """Return a value with tuples where JSON has lists, by the annotation of its field."""
    if hint.startswith("tuple"):
        return tuple(_list("shape", value))
    if "tuple" in hint and isinstance(value, dict):
        return {key: tuple(_list(key, each)) for key, each in value.items()}
    return value


def _records(cls: Any, what: str, data: object) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ProgramError(f"{what}s must be an object, got {data!r}")
    return {name: _record(cls, f"{what} {name!r}", each, make=True) for name, each in data.items()}


def _list(where: str, data: object) -> list[Any]:
    if not isinstance(data, list):
        raise ProgramError(f"{where} must be a list, got {data!r}")
    return data


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ProgramError(f"program: a key stands twice among {[key for key, _ in pairs]}")
    return dict(pairs)
