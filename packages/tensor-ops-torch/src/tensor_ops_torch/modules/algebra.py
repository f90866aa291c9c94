"""Formulas in one form each, so that two ways of writing the same one are equal.

A formula is a number times factors to some powers. It is rewritten only where that holds for all
real numbers: nothing is cancelled, and sums are not multiplied out. Rounding is not looked at.

>>> x, mean = symbol("x"), function("mean", symbol("x") * symbol("x"))
>>> x / power(mean + 1e-6, 0.5) == power(1e-6 + mean, -0.5) * x
True
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tensor_ops_torch.modules.refusal import RefusedError

__all__ = ["Formula", "Function", "Sum", "Symbol", "function", "number", "power", "symbol"]

Number = int | float
_DIGITS = 10  # to which constants such as sqrt(2 / pi) have to agree


@dataclass(frozen=True)
class Symbol:
    """An input: a tensor, or a number that is not known."""

    name: str
    positive: bool = False


@dataclass(frozen=True)
class Function:
    """A function of a formula."""

    name: str
    argument: Formula


@dataclass(frozen=True)
class Sum:
    """Two or more formulas that differ in their factors."""

    terms: frozenset[Formula]


Factor = Symbol | Function | Sum


@dataclass(frozen=True, eq=False)
class Formula:
    """A coefficient times factors, each to a power other than 0."""

    coefficient: Number
    factors: frozenset[tuple[Factor, float]] = frozenset()

    @cached_property
    def _key(self) -> Any:
        return f"{self.coefficient:.{_DIGITS - 1}e}", self.factors

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Formula) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __mul__(self, other: Formula | Number) -> Formula:
        other = _formula(other)
        powers = dict(self.factors)
        for factor, exponent in other.factors:
            before = powers.get(factor, 0)
            if before * exponent < 0 and not _is_positive(factor):
                raise RefusedError("divides what it multiplies")
            powers[factor] = before + exponent
        return _product(self.coefficient * other.coefficient, powers)

    def __truediv__(self, other: Formula | Number) -> Formula:
        return self * power(_formula(other), -1)

    def __add__(self, other: Formula | Number) -> Formula:
        other = _formula(other)
        found: dict[Any, Formula] = {}
        for term in (*self.terms, *other.terms):
            same = found.get(term.factors)
            if same is None:
                found[term.factors] = term
            elif same.coefficient * term.coefficient <= 0:
                raise RefusedError("subtracts what it adds")
            else:
                total = same.coefficient + term.coefficient
                found[term.factors] = Formula(total, term.factors)
        return _sum(found.values())

    def __neg__(self) -> Formula:
        return self * -1

    def __sub__(self, other: Formula | Number) -> Formula:
        return self + -_formula(other)

    __rmul__, __radd__ = __mul__, __add__

    def __rsub__(self, other: Number) -> Formula:
        return number(other) - self

    def __rtruediv__(self, other: Number) -> Formula:
        return number(other) / self

    def __str__(self) -> str:
        factors = sorted(_text(factor, exponent) for factor, exponent in self.factors)
        if self.coefficient != 1 or not factors:
            factors.insert(0, f"{self.coefficient:g}")
        return " * ".join(factors)

    @property
    def terms(self) -> Iterable[Formula]:
        """What it is the sum of: itself, unless it is a sum."""
        if self.coefficient == 1 and len(self.factors) == 1:
            ((factor, exponent),) = self.factors
            if isinstance(factor, Sum) and exponent == 1:
                return factor.terms
        return (self,)

    @property
    def value(self) -> Number | None:
        """The number that it is, None if it is none."""
        return None if self.factors else self.coefficient


def number(value: Number) -> Formula:
    """Return a constant."""
    if not math.isfinite(value):
        raise RefusedError(f"computes with {value}")
    return Formula(value)


def symbol(name: str, positive: bool = False) -> Formula:
    """Return an input."""
    return Formula(1, frozenset({(Symbol(name, positive), 1)}))


def function(name: str, argument: Formula) -> Formula:
    """Return a function of a formula; a mean's constant factor is taken out of it."""
    coefficient: Number = 1
    if name == "mean":
        coefficient, argument = argument.coefficient, Formula(1, argument.factors)
    return Formula(coefficient, frozenset({(Function(name, argument), 1)}))


def power(base: Formula, exponent: Number) -> Formula:
    """Return a formula to a constant power."""
    if exponent == 0:
        raise RefusedError("raises to the power of 0")
    whole = float(exponent).is_integer()
    signless = base.coefficient > 0 and all(map(_is_signless, base.factors))
    # A sum is a mean and eps; the root of x itself would have lost its negative numbers.
    odd = [isinstance(each, Sum) and before % 2 != 0 for each, before in base.factors]
    alone = base.coefficient == 1 and odd == [True]
    if not (whole or signless or alone):
        # The square root of a square is no plain power: it has lost the sign.
        raise RefusedError(f"raises to the power of {exponent:g} what may be negative")
    if base.coefficient == 0 and exponent < 0:
        raise RefusedError("divides by 0")
    powers = {factor: each * exponent for factor, each in base.factors}
    return _product(base.coefficient**exponent, powers)


def _text(factor: Factor, exponent: float) -> str:
    if isinstance(factor, Symbol):
        text = factor.name
    elif isinstance(factor, Function):
        text = f"{factor.name}({factor.argument})"
    else:
        text = f"({' + '.join(sorted(map(str, factor.terms)))})"
    return text if exponent == 1 else f"{text}^{exponent:g}"


def _formula(value: Formula | Number) -> Formula:
    return value if isinstance(value, Formula) else number(value)


def _product(coefficient: Number, powers: dict[Factor, float]) -> Formula:
    if coefficient == 0 and powers:
        raise RefusedError("multiplies by 0")
    powers = {factor: exponent for factor, exponent in powers.items() if exponent}
    if len(powers) == 1:
        ((factor, exponent),) = powers.items()
        if isinstance(factor, Sum) and exponent == 1 and coefficient != 1:
            return _sum(
                Formula(coefficient * each.coefficient, each.factors) for each in factor.terms
            )
    return Formula(coefficient, frozenset(powers.items()))


def _sum(terms: Iterable[Formula]) -> Formula:
    every = frozenset(terms)
    if len(every) == 1:
        return next(iter(every))
    if any(each.coefficient == 0 for each in every):
        raise RefusedError("adds 0")
    return Formula(1, frozenset({(Sum(every), 1)}))


def _is_positive(factor: Factor) -> bool:
    return isinstance(factor, Symbol) and factor.positive


def _is_signless(item: tuple[Factor, float]) -> bool:
    """Return whether a power of a factor is never negative."""
    factor, exponent = item
    if _is_positive(factor) or exponent % 2 == 0:
        return True
    return (
        isinstance(factor, Function)
        and factor.name == "mean"
        and factor.argument.coefficient > 0
        and all(map(_is_signless, factor.argument.factors))
    )
