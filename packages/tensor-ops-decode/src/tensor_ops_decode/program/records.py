"""The parts of a program: limits, tensors, caches, values and nodes, as plain records."""

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tensor_ops_decode.kinds.cache_types import head_bytes
from tensor_ops_decode.weights.formats import FORMATS

__all__ = [
    "MOST_BIASES",
    "PER_EDIT",
    "PER_REQUEST",
    "PER_TOKEN",
    "STEP_ARRAYS",
    "Cache",
    "Draft",
    "Limits",
    "Node",
    "Parts",
    "State",
    "Tensor",
    "Value",
    "new_name",
]

#: How many tokens of a request may have a bias.
MOST_BIASES = 1024

#: The arrays of every step that have an element for each token, all int32.
PER_TOKEN = ("tokens", "positions", "slots", "state_before", "state_after")
#: Those with an element for each request, and their dtypes.
PER_REQUEST = {
    "temperature": "float32",
    "top_p": "float32",
    "min_p": "float32",
    "top_k": "int32",
    "seed": "uint64",
    "num_edits": "int32",
}
#: Those with elements for the logits that a request changes, `num_edits` of them.
PER_EDIT = {"edited_tokens": "int32", "edit_biases": "float32", "edit_penalties": "float32"}
#: All arrays of every step; no output may have one of these names.
STEP_ARRAYS = (*PER_TOKEN, "selected", "page_table", *PER_REQUEST, *PER_EDIT)


@dataclass(frozen=True)
class Limits:
    """The most that one step, and the caches, hold.

    Of each node with states there is one for each request, and `extra_states` more: for each guess
    of each request, and for snapshots.
    """

    max_requests: int
    max_tokens: int
    max_selected: int
    max_seq_length: int
    page_size: int
    num_pages: int
    extra_states: int = 0

    @property
    def num_states(self) -> int:
        """The states that each node with states has memory for."""
        return self.max_requests + self.extra_states

    def rows(self, of: str) -> int:
        """The most rows of a value: its `Value.rows` are ``"tokens"`` or ``"selected"``."""
        return self.max_tokens if of == "tokens" else self.max_selected

    @property
    def pages_per_request(self) -> int:
        """The pages that a request of the longest sequence takes."""
        return -(-self.max_seq_length // self.page_size)

    @property
    def edits_per_request(self) -> int:
        """The logits that a request may change: a penalty for each token, and 1024 biases."""
        return self.max_seq_length + MOST_BIASES

    @property
    def guesses_per_request(self) -> int:
        """How many guesses of next tokens a step has room for, for each request."""
        return max(self.max_selected // self.max_requests - 1, 0)

    @property
    def num_snapshots(self) -> int:
        """How many states there are beside those of requests and of their guesses."""
        return max(self.extra_states - self.max_requests * self.guesses_per_request, 0)

    @property
    def longest(self) -> int:
        """The tokens of the longest sequence that the pages have room for."""
        return min(self.max_seq_length, self.num_pages * self.page_size)


@dataclass(frozen=True)
class Tensor:
    """A weight: its type, its shape and where it comes from.

    Attributes
    ----------
    type : str
    shape : tuple of int
    source : mapping
        ``{"file": ..., "tensor": ..., "transform": [...]}``, ``{"attached": True}`` of an array
        that the caller gives, or ``{"rotary": "cos" or "sin", "frequencies": [...], "factor": f}``
        of a table that is computed: row p is ``factor * cos(p * frequencies)``. Another one is
        ``{"rotary": "query_scale", "growth": g, "length": n}``, with ``1 + g * ln(1 + p // n)``. Of
        some rows or columns of an array that the caller gives, it is ``{"attached": True,
        "tensor": ..., "shape": [...], "transform": [...]}``, with the array's name and shape.
    """

    type: str
    shape: tuple[int, ...]
    source: Mapping[str, Any]

    @property
    def row_bytes(self) -> int:
        """The bytes of a row as it is stored."""
        return FORMATS[self.type].row_bytes(self.shape[-1])

    @property
    def num_bytes(self) -> int:
        """The bytes of all rows."""
        return math.prod(self.shape[:-1]) * self.row_bytes


@dataclass(frozen=True)
class Cache:
    """The keys and values of the tokens of all requests, for one node.

    The values of a head have `value_size` elements, or `head_size` as its keys.
    """

    num_kv_heads: int
    head_size: int
    dtype: str
    paged: bool
    value_size: int | None = None

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The heads, and the elements of a head of the keys and of the values."""
        return self.num_kv_heads, self.head_size, self.value_size or self.head_size

    @property
    def bytes_per_token(self) -> int:
        """The bytes of the keys and values of a token."""
        heads, keys, values = self.sizes
        return heads * (head_bytes(self.dtype, keys) + head_bytes(self.dtype, values))


@dataclass(frozen=True)
class State:
    """A matrix of float32 for each request, for one node whose tokens change it in turn.

    Those of the requests are numbered as their slots. As many more as the limits say can keep what
    a matrix was after a token.
    """

    rows: int
    columns: int
    paged: ClassVar[bool] = False

    @property
    def sizes(self) -> tuple[int, int]:
        """The rows and columns."""
        return self.rows, self.columns


@dataclass(frozen=True)
class Value:
    """A value between nodes: a matrix with a row for each token, or selected one."""

    rows: str
    columns: int
    dtype: str


@dataclass(frozen=True)
class Node:
    """One node: its kind, and the names of what it reads and writes."""

    kind: str
    name: str
    inputs: Mapping[str, str]
    weights: Mapping[str, tuple[str, ...]]
    outputs: Mapping[str, str]
    attributes: Mapping[str, Any]


@dataclass(frozen=True)
class Draft:
    """The last nodes of a program, which guess the token behind the one that a step chooses.

    They run in steps of their own, called draft steps. Of the nodes before them they read one
    output. A draft step has the tokens that follow those of the step before it.

    Attributes
    ----------
    first_node : str
        The first of these nodes.
    hidden : str
        The output of a node before them that they read: a row for each token.
    next_hidden : str
        Their output that takes its place in the draft step of the next guess, for selected tokens.
    tokens : str
        Their output with the guesses, of selected tokens too.
    """

    first_node: str
    hidden: str
    next_hidden: str
    tokens: str


@dataclass(frozen=True)
class Parts:
    """Parts of a program, whether they fit together or not."""

    limits: Limits
    tensors: Mapping[str, Tensor]
    caches: Mapping[str, Cache | State]
    values: Mapping[str, Value]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    draft: Draft | None = None

    @property
    def num_step_nodes(self) -> int:
        """How many nodes a step runs: those before the first of the draft."""
        names = [node.name for node in self.nodes]
        return len(names) if self.draft is None else names.index(self.draft.first_node)


def new_name(name: str, *taken: Container[str]) -> str:
    """Return a name that none of several containers has: the given one, with primes if need be."""
    while any(name in each for each in taken):
        name += "'"
    return name
