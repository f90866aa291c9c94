"""The declaration of a kind of node, and the checks of a node's arguments against it.

Each file of ``tensor_ops_decode/nodes`` declares one kind; `tensor_ops_decode.nodes.KINDS` has all.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

from tensor_ops_decode.arguments import is_number
from tensor_ops_decode.errors import ProgramError
from tensor_ops_decode.kinds.sizes import MOST_SIZE, POSITIONS, Relation, letters_in, new_letter

__all__ = [
    "Array",
    "Attribute",
    "Call",
    "FORMS",
    "Input",
    "KeysAndValues",
    "Kind",
    "Output",
    "Relation",
    "Role",
    "Sample",
    "StatePerRequest",
    "Weight",
]

#: An ndarray. NumPy's own types leave so much open that they say no more than this.
Array: TypeAlias = Any


@dataclass(frozen=True)
class Input:
    """A value that a node reads.

    Attributes
    ----------
    name, columns : str
        The columns are a size; see `tensor_ops_decode.kinds.sizes`.
    dtype : {"float32", "int32"}
    below : str
        Of int32: the size that all of its numbers must be stated to be below, as an output states
        it; the value ``tokens`` is checked before each step.
    """

    name: str
    columns: str
    dtype: str = "float32"
    below: str = ""


@dataclass(frozen=True)
class Output:
    """A value that a node writes, with the rows of its inputs or the selected ones.

    Attributes
    ----------
    name, columns : str
    dtype : {"float32", "int32"}
    below : str
        Of int32: the size that all of its numbers are below, from 0 on; "" states nothing.
    """

    name: str
    columns: str
    dtype: str = "float32"
    below: str = ""


#: What a slot for weights takes, and how many dimensions each of its tensors has.
FORMS = {
    "vector": 1,  # `rows` is its length
    "table": 2,  # a matrix in floating point; a token reads the row of its position
    "lookup": 2,  # a matrix whose rows are looked up by the numbers of an input
    "matrices": 2,  # one or more, one below the other, for products
    "biases": 1,  # one vector for each matrix of another slot
    "stack": 3,  # matrices of one size for products, which the numbers of an input choose from
    "stack_biases": 2,  # a matrix for each stack of a slot, with a row for each of its matrices
}
Form: TypeAlias = Literal[
    "vector", "table", "lookup", "matrices", "biases", "stack", "stack_biases"
]

#: What a node does to its rows, as far as executors may run it together with others, and ranks may
#: divide it.
Role: TypeAlias = Literal[
    "",
    "product",  # multiplies its first input with matrices, and adds biases
    "norm",  # scales a row by all of it
    "gate",  # multiplies one half of a row by an activation of the other
    "elementwise",  # works on each column by itself
    "sum",  # adds its two inputs
]


@dataclass(frozen=True)
class Weight:
    """A slot for tensors.

    Attributes
    ----------
    name : str
    form : str
        One of `FORMS`.
    rows, columns, planes : str
        Sizes: of many tensors those of all, joined along `axis`; of a stack `planes` is how many
        matrices it has. A stack may be one tensor, or several whose matrices follow one another.
    of : str
        Of biases: the slot of the matrices or stacks.
    chosen_by : str
        Of a lookup and of a stack: the int32 input whose numbers choose; "" of a stack whose
        matrices all multiply.
    optional : bool
    """

    name: str
    form: Form
    rows: str
    columns: str = ""
    planes: str = ""
    of: str = ""
    chosen_by: str = ""
    optional: bool = False

    @property
    def dimensions(self) -> int:
        """The dimensions of each tensor."""
        return FORMS[self.form]

    @property
    def many(self) -> bool:
        """Whether it takes more than one tensor."""
        return self.form in ("matrices", "biases", "stack", "stack_biases")

    @property
    def axis(self) -> int:
        """The axis along which the tensors of a slot follow one another."""
        return 1 if self.form in ("stack", "stack_biases") else 0

    @property
    def is_table(self) -> bool:
        """Whether a token reads one row, and not all."""
        return self.form in ("table", "lookup")

    @cached_property
    def sizes(self) -> tuple[tuple[str, str], ...]:
        """The sizes of its dimensions, and what each is called."""
        if self.dimensions == 1:
            return ((self.rows, f"length of {self.name}"),)
        rows = ((self.rows, f"rows of {self.name}"), (self.columns, f"columns of {self.name}"))
        return rows if self.dimensions == 2 else ((self.planes, f"matrices of {self.name}"), *rows)


@dataclass(frozen=True)
class KeysAndValues:
    """The cache of a node that reads a key and a value of each position of a request.

    Attributes
    ----------
    heads, keys, values : str
        Sizes: the heads, and the elements of a head of the keys and of the values.
    window : str
        The attribute that says how many positions a token reads, up to its own; 0 is all. "" where
        all are read.
    is_written_before : bool
        Whether a node before has written the key and the value of the position, and this node only
        reads them; it may then compute the selected tokens alone.
    """

    heads: str
    keys: str
    values: str
    window: str = ""
    is_written_before: bool = False

    @cached_property
    def sizes(self) -> tuple[tuple[str, str], ...]:
        """Its sizes, and what each is called."""
        return (
            (self.heads, "num_kv_heads of the cache"),
            (self.keys, "head_size of the cache"),
            (self.values, "value_size of the cache"),
        )


@dataclass(frozen=True)
class StatePerRequest:
    """The cache of a node that keeps one matrix of each request, which its tokens change in turn.

    Attributes
    ----------
    rows, columns : str
        Sizes.
    """

    rows: str
    columns: str

    @cached_property
    def sizes(self) -> tuple[tuple[str, str], ...]:
        """Its sizes, and what each is called."""
        return ((self.rows, "rows of the cache"), (self.columns, "columns of the cache"))


@dataclass(frozen=True)
class Attribute:
    """A number, or one of several words, that a node needs.

    Numbers are finite and at least `least`; integers are at most 2**31 - 1, and with a `letter`
    they are sizes.
    """

    name: str
    type: type
    least: float | None = None
    choices: tuple[str, ...] = ()
    letter: str = ""

    def check(self, where: str, value: object) -> None:
        """Raise a ProgramError if the value is not one of this attribute."""
        if self.type is str:
            if not isinstance(value, str) or value not in self.choices:
                expected = " or ".join(map(repr, self.choices))
                raise ProgramError(f"{where}: {self.name} must be {expected}, got {value!r}")
            return
        if not is_number(value) or (self.type is int and not isinstance(value, int)):
            what = "a finite number" if self.type is float else "an integer"
            raise ProgramError(f"{where}: {self.name} must be {what}, got {value!r}")
        if self.type is int and value > MOST_SIZE:  # type: ignore[operator]
            raise ProgramError(
                f"{where}: {self.name} must be an integer up to {MOST_SIZE}, got {value!r}"
            )
        if self.least is not None and value < self.least:  # type: ignore[operator]
            raise ProgramError(
                f"{where}: {self.name} must be at least {self.least:g}, got {value!r}"
            )


@dataclass(frozen=True)
class Call:
    """One node for one token, in the reference: vectors in, a vector out.

    Attributes
    ----------
    inputs, weights : mapping of str to ndarray
        In the dtype of the computation; the matrices of a slot are one array.
    attributes : mapping
    position : int
        Of the token in its request.
    store : callable or None
        Writes the token's key and value, shape ``(heads, head size)``, to the node's cache. Returns
        the keys and values of all tokens up to it, each of shape ``(tokens, heads, head size)``.
    stored : callable or None
        Returns the same of a node whose cache another has written.
    cache_dtype : str
    sampling : mapping
        ``temperature``, ``top_k``, ``top_p``, ``min_p`` and ``seed`` of the request, and its
        ``edited_tokens``, ``edit_biases`` and ``edit_penalties``.
    state : ndarray or None
        What the token before has kept, of a node that keeps a state; zeros for the first token.
    keep : callable or None
        Takes the state for the next token.
    num_ranks : int
    exchange : callable
        Takes a vector of this rank, and returns those of all ranks that run the program's shards
        together, in their order. All have the same length.
    """

    inputs: Mapping[str, Array]
    weights: Mapping[str, Array]
    attributes: Mapping[str, Any]
    position: int = 0
    store: Callable[[Array, Array], tuple[Array, Array]] | None = None
    stored: Callable[[], tuple[Array, Array]] | None = None
    cache_dtype: str = "float32"
    sampling: Mapping[str, Any] = field(default_factory=dict)
    state: Array | None = None
    keep: Callable[[Array], None] | None = None
    num_ranks: int = 1
    exchange: Callable[[Array], Sequence[Array]] = lambda x: (x,)


@dataclass(frozen=True)
class Sample:
    """A small node that every executor is tested on: sizes and attributes."""

    name: str
    columns: Mapping[str, int]
    weights: Mapping[str, Sequence[tuple[int, ...]]] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    cache: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Kind:
    """One kind of node.

    ``tools/node_kinds.py`` writes what it declares, other than its meaning, as a table for C++.

    Attributes
    ----------
    name : str
    meaning : str
        The formula.
    compute : callable
        Returns the output of a `Call`; of a kind with several, a tuple of them.
    bound : callable
        Returns the largest absolute error of each element that an executor in float32 may make, of
        a `Call` in float64, its output, and the kind of activations; of several outputs a tuple.
    inputs, outputs, weights, attributes : sequence
        Their sizes are read in the order attributes, cache, inputs, weights: the first place that
        has a letter decides what it stands for.
    cache : KeysAndValues, StatePerRequest or None
        What is kept between steps; the attribute ``cache`` names it.
    relations : sequence of Relation
        What must hold of the sizes besides.
    together : sequence of tuple of str
        Optional weights that are given all together, or not at all.
    role : {"", "product", "norm", "gate", "elementwise", "sum"}
        See `Role`.
    selects, draws, exchanges : bool
        Whether the outputs have only the rows that are selected, whether it draws a token from its
        first input by the parameters of each request, and whether its output depends on what its
        first input has on the other ranks.
    samples : sequence of Sample
    """

    name: str
    meaning: str
    compute: Callable[[Call], Any]
    bound: Callable[[Call, Any, str], Any]
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    weights: tuple[Weight, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    cache: KeysAndValues | StatePerRequest | None = None
    relations: tuple[Relation, ...] = ()
    together: tuple[tuple[str, ...], ...] = ()
    role: Role = ""
    selects: bool = False
    draws: bool = False
    exchanges: bool = False
    samples: tuple[Sample, ...] = ()

    def __post_init__(self) -> None:
        names = [each.name for slots in (self.inputs, self.outputs, self.weights) for each in slots]
        if len(set(names)) != len(names):
            raise ValueError(f"{self.name}: two slots have the same name")
        if not self.inputs:
            raise ValueError(f"{self.name}: there must be an input")
        for each in self.attributes:
            if (each.type is str) != bool(each.choices):
                raise ValueError(f"{self.name}: {each.name} must have choices if it is a word")
            if each.letter and (each.type is not int or (each.least or 0) < 1):
                raise ValueError(f"{self.name}: the size {each.name} must be at least 1")
        slots = [each.name for each in self.weights if each.optional]
        for count in range(len(slots) + 1):
            for given in itertools.combinations(slots, count):
                self._check_sizes(given, is_all=count == len(slots))
        self._check_links()

    @property
    def writes_cache(self) -> bool:
        """Whether a node has a cache, or a state, that no other writes."""
        of_other = isinstance(self.cache, KeysAndValues) and self.cache.is_written_before
        return self.cache is not None and not of_other

    @property
    def window(self) -> str:
        """The attribute that says how many positions a token reads; "" if there is none."""
        return self.cache.window if isinstance(self.cache, KeysAndValues) else ""

    def num_planes(
        self, slot: Weight, attributes: Mapping[str, Any], shape: tuple[int, ...]
    ) -> int:
        """Return how many matrices each stack of a slot has, whose first tensor has a shape."""
        named = (attributes[each.name] for each in self.attributes if each.letter == slot.planes)
        return next(named, shape[0])

    def _check_sizes(self, given: Collection[str], *, is_all: bool) -> None:
        """Raise a ValueError if a size has a letter that nothing decides.

        Of the optional weights those are given that are named.
        """
        known = {POSITIONS}

        def decide(sizes: Iterable[str]) -> None:
            for size in sizes:
                known.update(new_letter(size, known) or "")

        weights = [each for each in self.weights if not each.optional or each.name in given]
        decide(each.letter for each in self.attributes)
        if self.cache is not None:
            decide(size for size, _ in self.cache.sizes)
        decide(each.columns for each in self.inputs)
        decide(size for weight in weights for size, _ in weight.sizes)
        if not all(each.columns for each in self.outputs):
            raise ValueError(f"{self.name}: an output has no columns")
        written = [each.columns for each in self.outputs]
        bounds = [each.below for each in self.inputs] + [each.below for each in self.outputs]
        related = [size for each in self.relations for size in (each.left, each.right)]
        for size in written + bounds + related * is_all:
            if not letters_in(size) <= known:
                raise ValueError(f"{self.name}: {size} has letters that no slot decides")

    def _check_links(self) -> None:
        """Raise a ValueError if a slot names another that is not there, or of another form."""
        integers = {given.name for given in self.inputs if given.dtype == "int32" and given.below}
        of_form = {weight.name: weight.form for weight in self.weights}
        for weight in self.weights:
            choosers = {"lookup": integers, "stack": integers | {""}}
            if weight.chosen_by not in choosers.get(weight.form, {""}):
                raise ValueError(f"{self.name}: {weight.name} is chosen by no int32 input")
            multiplied = {"biases": "matrices", "stack_biases": "stack"}.get(weight.form)
            if of_form.get(weight.of) != multiplied or bool(weight.of) != bool(multiplied):
                raise ValueError(f"{self.name}: {weight.name} belongs to no matrices")
        optional = {weight.name for weight in self.weights if weight.optional}
        if not optional.issuperset(name for names in self.together for name in names):
            raise ValueError(f"{self.name}: what is given together must be optional weights")
        integers = {each.name for each in self.attributes if each.type is int}
        if self.window and self.window not in integers:
            raise ValueError(f"{self.name}: {self.window} is no integer attribute")
