"""The values of a forward's variables while it is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from tensor_ops_torch.modules.algebra import Formula, symbol
from tensor_ops_torch.modules.refusal import RefusedError

__all__ = [
    "N",
    "Attribute",
    "Child",
    "Device",
    "Itself",
    "Method",
    "Parent",
    "Shape",
    "TensorMethod",
    "Value",
    "X",
    "as_formula",
]

X = symbol("x")
N = symbol("n", positive=True)  # the length of a row


@dataclass(frozen=True)
class Value:
    """A tensor."""

    formula: Formula
    dtype: torch.dtype
    # That of x is "rows". With a last axis of one element it is "column", without its last axis
    # "means", and that of one row is "vector".
    shape: str

    def as_formula(self, formula: Formula) -> Value:
        return replace(self, formula=formula)


@dataclass(frozen=True)
class Attribute:
    """An attribute of the module that holds a number; it is read when it is used."""

    name: str
    value: int | float

    @property
    def formula(self) -> Formula:
        return symbol(f"self.{self.name}")


@dataclass(frozen=True)
class Itself:
    """The module."""


@dataclass(frozen=True)
class Parent:
    """The result of ``super()`` in a function of a class."""

    kind: type


@dataclass(frozen=True)
class Child:
    """A child of the module."""

    name: str


@dataclass(frozen=True)
class Method:
    """A function of a class; where it is bound, the module is its first argument."""

    owner: type
    name: str
    function: Any
    bound: bool = True


@dataclass(frozen=True)
class TensorMethod:
    """A method of a tensor, and what it does to formulas."""

    value: Value
    handler: Any


@dataclass(frozen=True)
class Shape:
    """The shape of a tensor, as `Value.shape` names it."""

    of: str


@dataclass(frozen=True)
class Device:
    """The device of a tensor, which is that of every other one of the call."""


def as_formula(value: Any) -> Formula:
    """Return what stands for a value in a formula; RefusedError for neither tensor nor number."""
    if isinstance(value, (Value, Attribute)):
        return value.formula
    if isinstance(value, Formula):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Formula(value)
    raise RefusedError(f"computes with a {type(value).__name__}")
