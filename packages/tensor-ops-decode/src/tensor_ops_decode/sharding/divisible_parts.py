"""The parts of a program that ranks can divide, found by their nodes and not by a model's family.

Each begins with a product, whose rows are divided. Attention and a gated MLP end with a product
too, whose columns are divided, and the ranks add what these give; of experts, each of which is such
an MLP, they add the weighted sums. Logits end with what each rank has of them, side by side.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from tensor_ops_decode.kinds.kind import Kind, Role
from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.program.node_slots import matrices_of
from tensor_ops_decode.program.records import Node, Parts
from tensor_ops_decode.sharding.rank_ranges import (
    Division,
    GatedColumns,
    Heads,
    LatentHeads,
    Logits,
)
from tensor_ops_decode.weights.formats import FORMATS

__all__ = ["DivisiblePart", "divisible_parts"]


@dataclass(frozen=True)
class DivisiblePart:
    """Nodes one after another, of which each rank does a share, and how ranks divide them.

    The first one is a product, whose rows are divided, and the last product, unless the part is
    logits, another, whose columns are divided and whose results are added, or sums of them. Those
    between work on the columns that a rank has.
    """

    nodes: tuple[Node, ...]
    division: Division

    @property
    def last_product(self) -> Node:
        """The product that comes last."""
        return [node for node in self.nodes if KINDS[node.kind].role == "product"][-1]


def divisible_parts(program: Parts) -> list[DivisiblePart]:
    """Return the parts of a program that ranks can divide; no node belongs to two."""
    graph = _Graph(program)
    found: list[DivisiblePart] = []
    taken: set[str] = set()
    for find in (graph.part_around, graph.latent_attention, graph.logits_from):
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
        self.shared_caches = {
            node.attributes["cache"]
            for node in program.nodes
            if KINDS[node.kind].cache is not None and not KINDS[node.kind].writes_cache
        }

    def part_around(self, node: Node) -> DivisiblePart | None:
        """Return the attention or the gated MLP whose middle a node is; None if there is none."""
        if node.kind == "attention" and node.attributes["cache"] in self.shared_caches:
            return None  # the heads of all nodes that have it would have to be divided alike
        if node.kind != "attention" and not _is_plain(node, "gate"):
            return None
        before, after = self.up_to_product(node, self.source), self.up_to_product(node, self.reader)
        if not before or not after:
            return None
        block, of = self.block_of(after[-1]), node.attributes
        division: Division
        if node.kind == "attention":
            division = Heads(of["num_heads"], of["num_kv_heads"], of["head_size"], block)
        else:
            chosen = self.num_chosen(after[-1])
            has_halves = _has_parts(before[-1], "output_parts", 2)
            has_inputs = _has_parts(after[-1], "input_parts", chosen)
            if not (has_halves and has_inputs and self.num_chosen(before[-1]) == chosen):
                return None
            columns = self.program.values[_output(node)].columns
            division = GatedColumns(columns // chosen, block)
        return DivisiblePart((*reversed(before), node, *after, *self.sum_of(after[-1])), division)

    def latent_attention(self, node: Node) -> DivisiblePart | None:
        """Return the latent attention that a node is, with what is of its heads around it.

        Its first product makes queries, which two nodes read: the product with the matrices of
        heads that takes them to latents, and the attention.
        """
        if node.kind != "latent_attention":
            return None
        absorbing, queries = (self.writers.get(node.inputs[x]) for x in ("absorbed", "query"))
        values = self.reader(node)
        if absorbing is None or queries is None or values is None:
            return None
        last = self.reader(values)
        readers = self.readers[node.inputs["query"]]
        is_whole = (
            {each.kind for each in (absorbing, values)} == {"head_linear"}
            and absorbing.inputs["x"] == node.inputs["query"]
            and self.reader(absorbing) is node
            and len(readers) == 2
            and node.inputs["query"] not in self.program.outputs
        )
        heads = node.attributes["num_heads"]
        stacks = [each.weights["weight"] for each in (absorbing, values) if is_whole]
        if not is_whole or any(len(self.program.tensors[each[0]].shape) < 3 for each in stacks):
            return None
        if last is None or not (self.is_divisible(queries) and self.is_divisible(last)):
            return None
        if "stack" in {slot.form for each in (queries, last) for slot in KINDS[each.kind].weights}:
            return None
        columns = [
            self.program.values[_output(each)].columns // heads for each in (values, queries)
        ]
        division = LatentHeads(heads, heads, columns[0], self.block_of(last), columns[1])
        return DivisiblePart((queries, absorbing, node, values, last), division)

    def num_chosen(self, product: Node) -> int:
        """Return how many experts compute in a product for a token; 1 if it has none."""
        return self.program.values[product.inputs["chosen"]].columns if _has_stacks(product) else 1

    def sum_of(self, product: Node) -> tuple[Node, ...]:
        """Return the node that adds what the experts of a product give."""
        reader = self.reader(product)
        return (reader,) if reader is not None and reader.kind == "combine" else ()

    def logits_from(self, node: Node) -> DivisiblePart | None:
        """Return the logits that a product makes; None if it makes other values."""
        if not self.is_divisible(node):
            return None
        nodes: tuple[Node, ...] = (node,)
        while (reader := self.reader(nodes[-1])) and _is_plain(reader, "elementwise"):
            nodes = (*nodes, reader)
        value = _output(nodes[-1])
        written = [KINDS[each.kind].outputs[0].dtype for each in self.readers[value]]
        if "int32" not in written and value not in self.program.outputs:
            return None  # neither is a token chosen by them, nor does a caller read them
        return DivisiblePart(nodes, Logits(self.program.values[value].columns))

    def up_to_product(self, node: Node, following: Callable[[Node], Node | None]) -> list[Node]:
        """Return the nodes that follow one, up to a product; [] if what is between is not plain."""
        found: list[Node] = []
        while next_ := following((node, *found)[-1]):
            found.append(next_)
            if self.is_divisible(next_):
                return found
            if not _is_plain(next_, "elementwise"):
                break
        return []

    def reader(self, node: Node) -> Node | None:
        """Return the node that reads what one writes, if nothing else does."""
        value = _output(node)
        readers = self.readers[value]
        return readers[0] if len(readers) == 1 and value not in self.program.outputs else None

    def source(self, node: Node) -> Node | None:
        """Return the node that writes what one reads, if nothing else reads it."""
        writer = self.writers.get(node.inputs[KINDS[node.kind].inputs[0].name])
        return writer if writer is not None and self.reader(writer) is not None else None

    def is_divisible(self, node: Node) -> bool:
        """Return whether a node is a product whose matrices and biases can be cut anywhere."""
        names = [name for of_slot in node.weights.values() for name in of_slot]
        tensors = [self.program.tensors[name] for name in names]
        return _is_product(KINDS[node.kind]) and all(
            "rotary" not in each.source and (len(each.shape) > 1 or FORMATS[each.type].is_float)
            for each in tensors
        )

    def block_of(self, product: Node) -> int:
        """Return what columns are a multiple of where no block of a product's matrices is cut."""
        names = [name for of_slot in matrices_of(product).values() for name in of_slot]
        return math.lcm(*(FORMATS[self.program.tensors[name].type].block_size for name in names))


def _has_stacks(product: Node) -> bool:
    return any(slot.form == "stack" for slot in KINDS[product.kind].weights)


def _has_parts(product: Node, attribute: str, count: int) -> bool:
    """Return whether a product with experts has so many parts; one without has no parts."""
    return not _has_stacks(product) or product.attributes[attribute] == count


def _is_product(kind: Kind) -> bool:
    """Return whether rows and columns of a product are those of its matrices."""
    if kind.role != "product" or len(kind.outputs) != 1:
        return False
    x, (output,) = kind.inputs[0], kind.outputs
    return all(
        (slot.form, slot.rows, slot.columns) == ("matrices", output.columns, x.columns)
        or (slot.form, slot.rows, slot.optional) == ("biases", output.columns, True)
        or slot.form in ("stack", "stack_biases")
        for slot in kind.weights
    )


def _is_plain(node: Node, role: Role) -> bool:
    """Return whether a node has a role, and reads nothing but the columns of one value."""
    return KINDS[node.kind].role == role and len(node.inputs) == 1 and not node.weights


def _output(node: Node) -> str:
    return next(iter(node.outputs.values()))
