"""A program with low-rank matrices beside those of a model: the products of an adapter."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tensor_ops_decode.program.program import Program
from tensor_ops_decode.program.records import Node, Tensor, Value, new_name
from tensor_ops_decode.weights.model_file import FileFormatError

__all__ = ["LowRank", "adapted_program"]

# Transforms of a matrix that pick rows, which can be picked of the second matrix of a pair too.
_OF_ROWS = ("row_blocks:", "rows:", "even_rows", "odd_rows")


@dataclass(frozen=True)
class LowRank:
    """Two matrices whose product ``up @ down`` is added to a matrix of a model.

    Attributes
    ----------
    down : Tensor
        Of shape (rank, columns).
    up : Tensor
        Of shape (rows, rank), multiplied with the factor of the adapter by a transform.
    """

    down: Tensor
    up: Tensor

    @property
    def rank(self) -> int:
        """The rows of the first matrix, and the columns of the second."""
        return self.down.shape[0]


def adapted_program(program: Program, pairs: Mapping[str, LowRank]) -> Program:
    """Return a program whose products with some matrices have those with pairs added.

    The pairs of all matrices of a product take two products together: one with the first matrices,
    one below the other, and one with the second ones. What that gives is added to the residual
    before the product of the model is, or to that product, so that executors add it on the way.

    Parameters
    ----------
    program : Program
        With the matrices as files have them, not quantized yet.
    pairs : mapping of str to LowRank
        By the name of the stored tensor.

    Raises
    ------
    FileFormatError
        If a node other than ``linear`` uses such a matrix, or none does, or it chooses experts by
        the results, or changes more of the matrix than which rows it has.
    """
    return _Adaptation(program, pairs).program() if pairs else program


class _Adaptation:
    def __init__(self, program: Program, pairs: Mapping[str, LowRank]) -> None:
        self.whole, self.pairs = program, pairs
        self.tensors, self.values = dict(program.tensors), dict(program.values)
        self.nodes: list[Node] = []
        self.written: set[str] = set()  # by these nodes
        self.writers = {name: node for node in program.nodes for name in node.outputs.values()}
        self.readers: dict[str, list[Node]] = defaultdict(list)
        for node in program.nodes:
            for name in node.inputs.values():
                self.readers[name].append(node)
        # The sums that add what pairs give to the residual: what they read instead of it.
        self.instead: dict[str, tuple[str, str]] = {}

    def program(self) -> Program:
        used: set[str] = set()
        for node in self.whole.nodes:
            found = {name for each in node.weights.values() for name in each if self.pair_of(name)}
            if not found:
                self.append(self.with_residual(node))
                continue
            self.check(node, found)
            used |= {self.stored(name) for name in found}
            self.add_products(node)
        if unused := sorted(self.pairs.keys() - used):
            raise FileFormatError(
                f"{_place(self.pairs[unused[0]])}: the program has no product with "
                f"{unused[0]!r}, which the adapter changes"
            )
        return replace(
            self.whole, tensors=self.tensors, values=self.values, nodes=tuple(self.nodes)
        )

    def stored(self, name: str) -> str:
        return str(self.whole.tensors[name].source.get("tensor", ""))

    def pair_of(self, name: str) -> LowRank | None:
        return self.pairs.get(self.stored(name))

    def check(self, node: Node, found: set[str]) -> None:
        name = min(found)
        where = f"{_place(self.pairs[self.stored(name)])}: {self.stored(name)!r}"
        readers = [each.kind for each in self.readers[node.outputs.get("output", "")]]
        if node.kind != "linear" or "route" in readers:
            used = "chooses experts" if "route" in readers else f"is used by {node.kind!r}"
            raise FileFormatError(
                f"{where} {used}; an adapter can only be beside matrices of plain products"
            )
        for name in found:
            for each in self.whole.tensors[name].source["transform"]:
                if not each.startswith(_OF_ROWS):
                    raise FileFormatError(
                        f"{where} is used after {each!r}; an adapter can only be beside matrices "
                        "that are used as they are, or rows of them"
                    )

    def add_products(self, node: Node) -> None:
        """Add the products with pairs, then the node, and the sum of both."""
        x, names = node.inputs["x"], node.weights["weight"]
        rows, (output,) = self.values[x].rows, node.outputs.values()
        pairs = {name: pair for name in names if (pair := self.pair_of(name)) is not None}
        down = [self.declared(f"{name}.down", pair.down) for name, pair in pairs.items()]
        rank = sum(pair.rank for pair in pairs.values())
        reduced = self.add(
            "linear", {"x": self.normed_again(x, node)}, down, f"{node.name}.down", rows, rank
        )
        columns = self.values[output].columns
        kind, up, attributes = self.second(names, pairs)
        name = f"{node.name}.up"
        change = self.add(kind, {"x": reduced}, up, name, rows, columns, attributes)
        if (residual := self.residual_of(output)) is not None:
            sum_, old = residual
            both = {"a": change, "b": old}
            made = self.add("add", both, [], f"{node.name}.adapted", rows, columns)
            self.instead[sum_.name] = old, made
            self.append(node)
            return
        # The sum takes the name of the product, which what follows reads.
        product = new_name(f"{node.name}.product", self.values)
        self.values[product] = self.values[output]
        self.append(replace(node, name=product, outputs={"output": product}))
        both = {"a": product, "b": change}
        self.append(Node("add", output, both, {}, {"output": output}, {}))

    def second(
        self, names: tuple[str, ...], pairs: Mapping[str, LowRank]
    ) -> tuple[str, list[str], Mapping[str, Any]]:
        """Return the product with the second matrices: its kind, these, and its attributes.

        Each multiplies a part of the row. Where all have one shape they are as the matrices of
        heads; otherwise each is made a matrix of as many columns as the row has, and is zero where
        the others' parts are.
        """
        ups = {name: self.rows_of(name, pair.up) for name, pair in pairs.items()}
        alike = {(each.type, each.shape) for each in ups.values()}
        if len(names) == len(pairs) and len(alike) == 1 and len(names) > 1:
            found = [self.declared(f"{name}.up", each) for name, each in ups.items()]
            return "head_linear", found, {"num_heads": len(names)}
        rank, first = sum(pair.rank for pair in pairs.values()), 0
        made: list[Tensor] = []
        before = 0  # rows without a pair that no matrix has yet
        for name in names:
            if name in ups:
                wide = _among(ups[name], "columns", first, rank)
                made.append(_among(wide, "rows", before, before + wide.shape[0]))
                first, before = first + pairs[name].rank, 0
            elif made:
                rows = made[-1].shape[0] + self.whole.tensors[name].shape[0]
                made[-1] = _among(made[-1], "rows", 0, rows)
            else:
                before += self.whole.tensors[name].shape[0]
        found = [self.declared(f"{name}.up", up) for name, up in zip(ups, made, strict=True)]
        return "linear", found, {}

    def rows_of(self, name: str, up: Tensor) -> Tensor:
        """Return the rows of a second matrix that a node uses of the model's."""
        tensor = self.whole.tensors[name]
        transform = [*up.source["transform"], *tensor.source["transform"]]
        shape = (tensor.shape[0], up.shape[1])
        return replace(up, shape=shape, source={**up.source, "transform": transform})

    def residual_of(self, output: str) -> tuple[Node, str] | None:
        """Return the node that adds a residual to a value, and that; None if none does.

        Nothing else may read the value, and the residual must be there already.
        """
        readers = self.readers[output]
        if len(readers) != 1 or readers[0].kind != "add" or output in self.whole.outputs:
            return None
        (other,) = [name for name in readers[0].inputs.values() if name != output] or [output]
        return (readers[0], other) if other in self.written else None

    def with_residual(self, node: Node) -> Node:
        """Return a node; of a sum, one that reads the residual with what a pair gives."""
        if node.name not in self.instead:
            return node
        old, new = self.instead[node.name]
        inputs = {slot: new if name == old else name for slot, name in node.inputs.items()}
        return replace(node, inputs=inputs)

    def normed_again(self, x: str, node: Node) -> str:
        """Return the input of a product; of a norm that only one reads, that of another such norm.

        So each of two products has a norm of its own before it, with which it runs as one phase.
        """
        writer = self.writers.get(x)
        if writer is None or writer.kind != "rms_norm" or x in self.whole.outputs:
            return x
        if self.readers[x] != [node]:
            return x
        name = new_name(f"{node.name}.norm", self.values)
        self.values[name] = self.values[x]
        self.append(replace(writer, name=name, outputs={"output": name}))
        return name

    def declared(self, name: str, tensor: Tensor) -> str:
        """Declare a tensor, unless it is there; return its name."""
        while self.tensors.get(name, tensor) != tensor:
            name += "'"
        self.tensors[name] = tensor
        return name

    def add(
        self,
        kind: str,
        inputs: Mapping[str, str],
        weights: list[str],
        output: str,
        rows: str,
        columns: int,
        attributes: Mapping[str, Any] | None = None,
    ) -> str:
        name = new_name(output, self.values)
        self.values[name] = Value(rows, columns, "float32")
        slots = {"weight": tuple(weights)} if weights else {}
        self.append(Node(kind, name, dict(inputs), slots, {"output": name}, dict(attributes or {})))
        return name

    def append(self, node: Node) -> None:
        self.nodes.append(node)
        self.written.update(node.outputs.values())


def _among(up: Tensor, what: str, first: int, size: int) -> Tensor:
    """Return a matrix with rows or columns of zeros around its own."""
    axis = 0 if what == "rows" else 1
    if size == up.shape[axis]:
        return up
    transform = [*up.source["transform"], f"among_{what}:{first}:{size}"]
    shape = (size, up.shape[1]) if axis == 0 else (up.shape[0], size)
    return replace(up, shape=shape, source={**up.source, "transform": transform})


def _place(pair: LowRank) -> str:
    return str(pair.up.source["file"])
