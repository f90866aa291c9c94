"""What a kind of node declares about itself, and how its arguments are checked.

Each file of ``tensor_ops_decode/nodes`` declares one kind; `tensor_ops_decode.nodes.KINDS` has all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tensor_ops_decode.errors import ProgramError

__all__ = [
    "MOST_SIZE",
    "Array",
    "Attribute",
    "Call",
    "Input",
    "Kind",
    "Sample",
    "Shapes",
    "Weight",
    "is_number",
]

#: The largest size, and the largest integer of a node: tokens, rows and columns are numbered by
#: int32.
MOST_SIZE = 2**31 - 1

#: An ndarray. NumPy's own types leave so much open that they say no more than this.
Array: TypeAlias = Any


def is_number(value: object) -> bool:
    """Return whether a value is a finite number that float64 holds."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


@dataclass(frozen=True)
class Input:
    """A value that a node reads."""

    name: str
    optional: bool = False
    dtype: str = "float32"


@dataclass(frozen=True)
class Weight:
    """A slot for tensors: one vector, one matrix, or matrices (`many`) one below the other.

    Of a table (`is_table`) a token reads one row, of anything else it reads all.
    """

    name: str
    dimensions: int
    optional: bool = False
    many: bool = False
    is_table: bool = False


@dataclass(frozen=True)
class Attribute:
    """A number or a word that a node needs.

    Numbers are finite and at least `least`; integers are at most 2**31 - 1.
    """

    name: str
    type: type
    least: float | None = None
    choices: tuple[str, ...] = ()

    def check(self, where: str, value: object) -> None:
        """Raise a ProgramError if the value is not one of this attribute."""
        if self.type is str:
            if not isinstance(value, str) or (self.choices and value not in self.choices):
                expected = " or ".join(map(repr, self.choices)) or "a string"
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
class Shapes:
    """What a kind computes the columns of its output from; see `Kind.columns`.

    Attributes
    ----------
    where : str
        The node in words, for errors.
    columns : mapping
        The columns of each input that is given.
    weights : mapping
        The shape of each weight that is given; of many matrices, that of all rows together.
    attributes : mapping
    cache : tuple of int or None
        The heads and the head size of the node's cache.
    """

    where: str
    columns: Mapping[str, int]
    weights: Mapping[str, tuple[int, ...]]
    attributes: Mapping[str, Any]
    cache: tuple[int, int] | None = None

    def require(self, what: str, given: object, expected: object) -> None:
        """Raise a ProgramError unless two sizes are equal."""
        if given != expected:
            raise ProgramError(f"{self.where}: {what} must be {expected}, got {given}")

    def linear(self, columns: int) -> int:
        """Return the columns of a product with the slots ``weight`` and ``bias``."""
        rows, inner = self.weights["weight"]
        self.require("the columns of weight", inner, columns)
        if "bias" in self.weights:
            self.require("the length of bias", self.weights["bias"][0], rows)
        return rows


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
        Writes the token's key and value, shape ``(heads, head size)``, to the cache of a node that
        has one. Returns those of all tokens up to it, shape ``(tokens, heads, head size)``.
    cache_dtype : str
    sampling : mapping
        ``temperature``, ``top_k``, ``top_p``, ``min_p`` and ``seed`` of the request, and its
        ``edited_tokens``, ``edit_biases`` and ``edit_penalties``.
    """

    inputs: Mapping[str, Array]
    weights: Mapping[str, Array]
    attributes: Mapping[str, Any]
    position: int = 0
    store: Callable[[Array, Array], tuple[Array, Array]] | None = None
    cache_dtype: str = "float32"
    sampling: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """A small node that every executor is tested on: sizes and attributes."""

    name: str
    columns: Mapping[str, int]
    weights: Mapping[str, Sequence[tuple[int, ...]]] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    cache: tuple[int, int] | None = None


@dataclass(frozen=True)
class Kind:
    """One kind of node.

    Attributes
    ----------
    name : str
    meaning : str
        The formula.
    columns : callable
        Returns the columns of the output, of `Shapes`; raises a ProgramError if they do not fit.
    compute : callable
        Returns the output of a `Call`.
    bound : callable
        Returns the largest absolute error of each element that an executor in float32 may make, of
        a `Call` in float64, its output, and the kind of activations.
    inputs, weights, attributes : sequence
    selects : bool
        Whether the output has only the rows that are selected.
    output_dtype : {"float32", "int32"}
    has_cache : bool
    samples : sequence of Sample
    """

    name: str
    meaning: str
    columns: Callable[[Shapes], int]
    compute: Callable[[Call], Array]
    bound: Callable[[Call, Array, str], Array]
    inputs: tuple[Input, ...]
    weights: tuple[Weight, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    selects: bool = False
    output_dtype: str = "float32"
    has_cache: bool = False
    samples: tuple[Sample, ...] = ()
