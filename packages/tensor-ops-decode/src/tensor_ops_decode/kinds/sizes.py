"""The notation of sizes in what kinds of nodes declare, and what its letters stand for in a node.

A size is a sum of products: ``"K"``, ``"2F"``, ``"HD+2GD"`` or ``"1"``. A letter stands for the
same number in all of a node; the empty size is any number. ``native/decode/program/node_rules.cpp``
reads the same notation.
"""

import functools
import math
import re
from collections.abc import Set
from dataclasses import dataclass
from typing import Literal

from tensor_ops_decode.errors import ProgramError

__all__ = ["MOST_SIZE", "POSITIONS", "DimensionVariables", "Relation", "letters_in", "new_letter"]

#: The largest size, and the largest integer of a node: tokens, rows and columns are int32.
MOST_SIZE = 2**31 - 1
#: The letter that stands for the positions of the longest sequence in every node.
POSITIONS = "P"
_POSITIONS_IN_WORDS = "limits.max_seq_length"
_TERM = re.compile(r"([1-9][0-9]*)?([A-Z]*)")


@dataclass(frozen=True)
class Relation:
    """A relation that must hold of two sizes, such as ``Relation("2A", "at most", "D")``."""

    left: str
    how: Literal["at least", "at most", "a multiple of"]
    right: str

    def holds(self, left: int, right: int) -> bool:
        """Return whether it holds of two numbers."""
        if self.how == "a multiple of":
            return left % right == 0
        return left >= right if self.how == "at least" else left <= right


@functools.cache
def letters_in(size: str) -> frozenset[str]:
    """Return the letters of a size."""
    return frozenset(letter for _, letters in _terms(size) for letter in letters)


def new_letter(size: str, known: Set[str]) -> str | None:
    """Return the letter that a size decides where those `known` are decided, or None.

    Raises ValueError if the size has a letter that nothing decides.

    >>> new_letter("2F", {"H"}), new_letter("KH", {"K"})
    ('F', 'H')
    """
    unknown = [letter for _, letters in _terms(size) for letter in letters if letter not in known]
    if not unknown:
        return None
    if len(_terms(size)) > 1 or len(unknown) > 1:
        raise ValueError(f"the size {size!r} has letters that no slot before decides")
    return unknown[0]


class DimensionVariables:
    """The numbers that the letters of a node's slots stand for: the first slot decides.

    Errors call the node `where`. The positions are those of the longest sequence.
    """

    def __init__(self, where: str, positions: int) -> None:
        self._where = where
        self._value = {POSITIONS: positions}
        self._words = {POSITIONS: _POSITIONS_IN_WORDS}

    def match(self, size: str, given: int, what: str) -> None:
        """Raise a ProgramError unless a number is what a size says; `what` has it, in words."""
        letter = new_letter(size, self._value.keys())
        if letter is not None:
            ((factor, letters),) = _terms(size)
            factor *= math.prod(self._value[each] for each in letters if each != letter)
            if given % factor:
                raise ProgramError(
                    f"{self._where}: the {what} must be a multiple of {factor}, got {given}"
                )
            self._value[letter], self._words[letter] = given // factor, what
        elif size and given != self.value(size):
            raise ProgramError(f"{self._where}: the {what} must be {self.value(size)}, got {given}")

    def value(self, size: str) -> int:
        """Return the number that a size is."""
        if size in self._value:  # a letter alone, as most sizes are
            return self._value[size]
        return sum(
            factor * math.prod(self._value[letter] for letter in letters)
            for factor, letters in _terms(size)
        )

    def knows(self, size: str) -> bool:
        """Return whether all letters of a size are decided."""
        return letters_in(size) <= self._value.keys()

    def require(self, relation: Relation) -> None:
        """Raise a ProgramError unless a relation holds, if all of its letters are decided."""
        if not self.knows(relation.left + "+" + relation.right):
            return
        left, right = self.value(relation.left), self.value(relation.right)
        if not relation.holds(left, right):
            raise ProgramError(
                f"{self._where}: {self._in_words(relation.left)} must be {relation.how} "
                f"{self._in_words(relation.right)}, got {left} and {right}"
            )

    def _in_words(self, size: str) -> str:
        return " + ".join(
            " * ".join(
                [str(factor)] * (factor > 1 or not letters)
                + [self._words[each] for each in letters]
            )
            for factor, letters in _terms(size)
        )


@functools.cache
def _terms(size: str) -> list[tuple[int, str]]:
    """Return the terms of a size: of each its factor and its letters."""
    found = []
    for term in size.split("+") if size else ():
        match = _TERM.fullmatch(term)
        if match is None or not term:
            raise ValueError(f"{size!r} is no size; sizes are like 'K', '2F', 'HD+2GD' and '1'")
        found.append((int(match[1] or 1), match[2]))
    return found
