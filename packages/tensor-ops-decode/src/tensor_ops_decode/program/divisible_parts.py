"""The parts of a program that ranks can divide, found by their nodes and not by a model's family.

Each begins with a product, whose rows are divided. Attention and a gated MLP end with a product
too, whose columns are divided, and the ranks add what these give. Logits end with what each rank
has of them, side by side.
"""

import math
from dataclasses import dataclass

from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.program.node_slots import matrices_of
from tensor_ops_decode.program.rank_ranges import Division, GatedColumns, Heads, Logits
from tensor_ops_decode.program.records import Node, Parts
from tensor_ops_decode.weights.formats import FORMATS

__all__ = ["DivisiblePart", "divisible_parts"]

#: The kinds that multiply with the rows of matrices; a residual must be whole.
_PRODUCTS = ("linear", "rms_norm_linear")
#: The kinds that work on each column by itself.
_ELEMENTWISE = ("scale", "soft_cap")
#: The kinds that multiply one half of a row by an activation of the other.
_GATES = ("silu_mul", "gelu_mul")
#: The kind that is a gate and a product in one.
_GATE_WITH_PRODUCT = "silu_mul_linear_with_residual"


@dataclass(frozen=True)
class DivisiblePart:
    """Nodes one after another, of which each rank does a share.

    Attributes
    ----------
    first : Node
        A product, whose rows are divided.
    between : tuple of Node
        They work on the columns that a rank has.
    last : Node or None
        A product, whose columns are divided and whose results are added; None for logits.
    division : Division
        How ranks divide its rows and columns.
    """

    first: Node
    between: tuple[Node, ...]
    last: Node | None
    division: Division

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All of its nodes."""
        return (self.first, *self.between, *(() if self.last is None else (self.last,)))


def divisible_parts(program: Parts) -> list[DivisiblePart]:
    """Return the parts of a program that ranks can divide; no node belongs to two."""
    graph = _Graph(program)
    found: list[DivisiblePart] = []
    taken: set[str] = set()
    for find in (graph.part_around, graph.logits_from):
        for node in program.nodes:
            part = find(node)
            names = set() if part is None else {each.name for each in part.nodes}
            if part is not None and taken.isdisjoint(names):
                taken |= names
                found.append(part)
    return found


class _Graph:
    """Which nodes write and read each value of a program."""

    def __init__(self, program: Parts) -> None:
        self.program = program
        self.writers = {name: node for node in program.nodes for name in node.outputs.values()}
        self.readers: dict[str, list[Node]] = {name: [] for name in self.writers}
        for node in program.nodes:
            for name in node.inputs.values():
                self.readers.setdefault(name, []).append(node)

    def part_around(self, node: Node) -> DivisiblePart | None:
        """Return the attention or the gated MLP whose middle a node is; None if there is none."""
        if node.kind not in ("attention", *_GATES, _GATE_WITH_PRODUCT):
            return None
        is_whole = node.kind == _GATE_WITH_PRODUCT
        value = node.inputs["qkv" if node.kind == "attention" else "x"]
        before = self.product_before(value)
        after = ((), node) if is_whole else self.product_after(node.outputs["output"])
        if before is None or after is None:
            return None
        (first, of_first), (of_last, last) = before, after
        if not self.can_be_cut(first) or not self.can_be_cut(last):
            return None
        between = (*of_first, *(() if is_whole else (node,)), *of_last)
        block = self.block_of(last)
        if node.kind == "attention":
            of = node.attributes
            heads = Heads(of["num_heads"], of["num_kv_heads"], of["head_size"], block)
            return DivisiblePart(first, between, last, heads)
        columns = self.program.values[value].columns // 2
        return DivisiblePart(first, between, last, GatedColumns(columns, block))

    def logits_from(self, node: Node) -> DivisiblePart | None:
        """Return the logits that a product makes; None if it makes other values."""
        if not self.is_product(node) or not self.can_be_cut(node):
            return None
        between: list[Node] = []
        value = node.outputs["output"]
        while (reader := self.only_reader(value)) and reader.kind in _ELEMENTWISE:
            between.append(reader)
            value = reader.outputs["output"]
        chooses = any(
            each.kind == "argmax" or KINDS[each.kind].draws for each in self.readers[value]
        )
        if not chooses and value not in self.program.outputs:
            return None
        columns = self.program.values[value].columns
        return DivisiblePart(node, tuple(between), None, Logits(columns))

    def product_before(self, value: str) -> tuple[Node, tuple[Node, ...]] | None:
        """Return the product that a value comes from, and the elementwise nodes between."""
        between: list[Node] = []
        while value in self.writers and self.only_reader(value) is not None:
            writer = self.writers[value]
            if self.is_product(writer):
                return writer, tuple(reversed(between))
            if writer.kind not in _ELEMENTWISE:
                return None
            between.append(writer)
            value = writer.inputs["x"]
        return None

    def product_after(self, value: str) -> tuple[tuple[Node, ...], Node] | None:
        """Return the elementwise nodes behind a value, and the product that reads it."""
        between: list[Node] = []
        while reader := self.only_reader(value):
            if reader.kind == "linear":
                return tuple(between), reader
            if reader.kind not in _ELEMENTWISE:
                return None
            between.append(reader)
            value = reader.outputs["output"]
        return None

    def only_reader(self, value: str) -> Node | None:
        """Return the node that reads a value, if no other does and it is no output."""
        readers = self.readers[value]
        return readers[0] if len(readers) == 1 and value not in self.program.outputs else None

    def is_product(self, node: Node) -> bool:
        return node.kind in _PRODUCTS and "residual" not in node.inputs

    def can_be_cut(self, product: Node) -> bool:
        """Return whether matrices and biases have rows that can be cut anywhere."""
        names = [name for of_slot in matrices_of(product).values() for name in of_slot]
        biases = product.weights.get("bias", ())
        tensors = self.program.tensors
        are_stored = all("rotary" not in tensors[name].source for name in (*names, *biases))
        return are_stored and all(FORMATS[tensors[name].type].is_float for name in biases)

    def block_of(self, product: Node) -> int:
        """Return what columns are a multiple of where no block of a product's matrices is cut."""
        names = [name for of_slot in matrices_of(product).values() for name in of_slot]
        return math.lcm(*(FORMATS[self.program.tensors[name].type].block_size for name in names))
