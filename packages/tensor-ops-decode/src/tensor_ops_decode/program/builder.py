"""Adds nodes to a program one by one, each checked when it is added."""

import contextlib
import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from tensor_ops_decode.errors import ProgramError
from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.program.node_rules import TOKENS, outputs_of
from tensor_ops_decode.program.program import Cache, Limits, Node, Program, State, Tensor, Value
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
            What both tables are multiplied by.
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

    def cache(self, name: str, cache: Cache | State) -> str:
        """Declare a cache, which one node uses, and return its name.

        A cache that none uses is not part of the program.
        """
        if name in self._used_caches():
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
        declared: tuple[object, ...] | None = None,
    ) -> str:
        """Add a node and return the name of its output, which is the node's name too.

        For a kind with several outputs, `output` maps each slot to a name, and the name of the
        first slot is the node's. If `declared` is given, it is the rows, the columns and the dtype
        that the output must have.

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
        node = Node(kind, name, dict(inputs), lists, outputs, dict(attributes or {}))
        self.add_node(node, declared)
        return name

    def add_node(self, node: Node, declared: tuple[object, ...] | None = None) -> None:
        """Add a node that has been made already, as `add` adds one."""
        where = f"{node.kind} {node.name!r}"
        if not self._values.keys().isdisjoint(node.outputs.values()):
            raise ProgramError(f"{where}: a value of this name exists already")
        known, caches = self._values, self._caches
        given = given_to(where, node, self.limits, self._tensors, caches, known, before="layer")
        made = outputs_of(KINDS[node.kind], given)
        value = made[0].value
        rows = self.limits.rows(value.rows)
        found = (rows, value.columns, value.dtype)
        if declared not in (None, found):
            raise ProgramError(
                f"{where}: its output has rows, columns and dtype {found}, declared are {declared}"
            )
        self._values.update({each.name: each for each in made})
        self._nodes.append(node)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Add several nodes or none: an error takes back those that came before it."""
        count = len(self._nodes)
        try:
            yield
        except BaseException:
            for name in (name for node in self._nodes[count:] for name in node.outputs.values()):
                del self._values[name]
            del self._nodes[count:]
            raise

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

    def program(self, outputs: Iterable[str]) -> Program:
        """Return the program, with the values that a caller may read after a step."""
        values = {name: each.value for name, each in self._values.items() if name != TOKENS.name}
        caches = {name: self._caches[name] for name in self._used_caches()}
        return Program(self.limits, self._tensors, caches, values, self.nodes, tuple(outputs))

    def _used_caches(self) -> list[str]:
        named = [node.attributes.get("cache") for node in self._nodes]
        return [name for name in named if name is not None]
