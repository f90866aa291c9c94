"""Adds nodes to a program one by one, each checked when it is added."""

import dataclasses
from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tensor_ops_decode.errors import ProgramError
from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.program.node_rules import TOKENS, InferredValue, outputs_of
from tensor_ops_decode.program.program import Program, of_checked_nodes
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
from tensor_ops_decode.program.rules import given_to

__all__ = ["Builder"]


class Builder:
    """A program that is being put together.

    Parameters
    ----------
    limits : Limits

    Examples
    --------
    >>> from tensor_ops_decode.program.builder import Builder
    >>> from tensor_ops_decode.program.program import Limits, Tensor
    >>> builder = Builder(Limits(1, 4, 4, 64, 16, 4))
    >>> builder.tensor("table", Tensor("f32", (10, 8), {"attached": True}))
    'table'
    >>> x = builder.add("embed", {"tokens": "tokens"}, {"weight": "table"}, output="x")
    >>> print(builder.program([x]))
    x [tokens, 8] = embed(tokens=tokens, weight=table)
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._tensors: dict[str, Tensor] = {}
        self._caches: dict[str, Cache | State] = {}
        self._values = {TOKENS.name: TOKENS}
        self._nodes: list[Node] = []
        self._used_caches: dict[str, None] = {}  # in the order of their nodes

    def tensor(self, name: str, tensor: Tensor) -> str:
        """Declare a weight and return its name; the same one may be declared again."""
        if self._tensors.setdefault(name, tensor) != tensor:
            raise ProgramError(f"tensor {name!r} exists already, as {self._tensors[name]}")
        return name

    def rotary_tables(self, frequencies: Iterable[float], factor: float = 1.0) -> dict[str, str]:
        """Declare the tables of cosines and sines for the slots ``cos`` and ``sin`` of attention.

        Parameters
        ----------
        frequencies : iterable of float
            Radians per position, one for each pair of elements.
        factor : float, optional
            The factor of both tables.
        """
        frequencies = [float(each) for each in frequencies]
        shape = (self.limits.max_seq_length, len(frequencies))
        tables = {}
        for slot in ("cos", "sin"):
            source = {"rotary": slot, "frequencies": frequencies, "factor": factor}
            name = f"rotary.{slot}"
            while self._tensors.get(name, Tensor("f32", shape, source)).source != source:
                name += "'"
            tables[slot] = self.tensor(name, Tensor("f32", shape, source))
        return tables

    def query_scale(self, growth: float, length: int) -> str:
        """Declare the table for the slot ``query_scale`` of attention, and return its name.

        Row p is ``1 + growth * ln(1 + floor(p / length))``.
        """
        source = {"rotary": "query_scale", "growth": float(growth), "length": length}
        name = f"rotary.query_scale.{growth:g}.{length}"
        return self.tensor(name, Tensor("f32", (self.limits.max_seq_length, 1), source))

    def cache(self, name: str, cache: Cache | State) -> str:
        """Declare a cache, which one node writes, and return its name.

        A cache that none uses is not part of the program.
        """
        if name in self._used_caches:
            raise ProgramError(f"cache {name!r} exists already")
        self._caches[name] = cache
        return name

    def set_cache_dtype(self, dtype: str) -> None:
        """Change the dtype of all caches that are declared."""
        for name, each in self._caches.items():
            if isinstance(each, Cache):
                self._caches[name] = dataclasses.replace(each, dtype=dtype)

    def add(
        self,
        kind: str,
        inputs: Mapping[str, str],
        weights: Mapping[str, str | Iterable[str]] | None = None,
        attributes: Mapping[str, Any] | None = None,
        *,
        output: str | Mapping[str, str],
    ) -> str:
        """Add a node and return the name of its output, which is the node's name too.

        For a kind with several outputs, `output` maps each slot to a name, and the name of the
        first slot is the node's.

        Raises
        ------
        ProgramError
            If what is given does not fit; the program stays what it was.
        """
        outputs = {"output": output} if isinstance(output, str) else dict(output)
        first = KINDS[kind].outputs[0].name if kind in KINDS else ""
        name = outputs.get(first, next(iter(outputs.values()), ""))
        lists = {
            slot: (names,) if isinstance(names, str) else tuple(names)
            for slot, names in (weights or {}).items()
        }
        self.add_nodes([Node(kind, name, dict(inputs), lists, outputs, dict(attributes or {}))])
        return name

    def add_nodes(
        self, nodes: Iterable[Node], declared: Mapping[str, tuple[object, ...]] | None = None
    ) -> None:
        """Add nodes, as `add` does: all, or none if one does not fit.

        The first output of a node that is `declared`, by its name, must have these rows, columns
        and this dtype.
        """
        new: dict[str, InferredValue] = {}
        nodes = list(nodes)
        known = self._values if len(nodes) == 1 else ChainMap(new, self._values)
        for node in nodes:
            where = f"{node.kind} {node.name!r}"
            if not known.keys().isdisjoint(node.outputs.values()):
                raise ProgramError(f"{where}: a value of this name exists already")
            parts = self.limits, self._tensors, self._caches
            given = given_to(where, node, *parts, known, before="layer")
            made = outputs_of(KINDS[node.kind], given)
            value, wanted = made[0].value, (declared or {}).get(made[0].name)
            found = (self.limits.rows(value.rows), value.columns, value.dtype)
            if wanted not in (None, found):
                raise ProgramError(
                    f"{where}: its output has rows, columns and dtype {found}, declared are "
                    f"{wanted}"
                )
            new.update({each.name: each for each in made})
        self._values |= new
        self._nodes += nodes
        caches = (node.attributes.get("cache") for node in nodes)
        self._used_caches |= {name: None for name in caches if name is not None}

    def rename(self, old: str, new: str) -> None:
        """Give a value another name, and the node that is named after it."""

        def renamed(names: Mapping[str, str]) -> dict[str, str]:
            return {slot: new if name == old else name for slot, name in names.items()}

        self._values[new] = dataclasses.replace(self._values.pop(old), name=new)
        for index, node in enumerate(self._nodes):
            inputs, outputs = renamed(node.inputs), renamed(node.outputs)
            name = new if node.name == old else node.name
            changed = dataclasses.replace(node, name=name, inputs=inputs, outputs=outputs)
            self._nodes[index] = changed

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes so far."""
        return tuple(self._nodes)

    @property
    def names(self) -> Collection[str]:
        """The names of all values so far."""
        return self._values.keys()

    def type_of(self, name: str) -> str:
        """Return the type of a tensor."""
        return self._tensors[name].type

    def value(self, name: str) -> Value:
        """Return what is known of a value."""
        return self._values[name].value

    def program(self, outputs: Iterable[str], draft: Draft | None = None) -> Program:
        """Return the program, with the values that a caller may read after a step."""
        values = {name: each.value for name, each in self._values.items() if name != TOKENS.name}
        caches = {name: self._caches[name] for name in self._used_caches}
        parts = Parts(self.limits, self._tensors, caches, values, self.nodes, tuple(outputs), draft)
        return of_checked_nodes(parts, self._values)
