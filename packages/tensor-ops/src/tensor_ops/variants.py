"""Ops with each setting of their switches, for whoever wants to go through all there is.

>>> VARIANTS["gelu:none"].options
{'approximate': 'none'}
>>> [variant.name for variant in named("rope")]
['rope', 'rope:interleaved']
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tensor_ops.op import Op
from tensor_ops.op.arguments import ParameterKind
from tensor_ops.ops import OPS

__all__ = ["VARIANTS", "Variant", "named", "variant"]


@dataclass(frozen=True)
class Variant:
    """An op with one setting of each of its switches."""

    # As in ``gelu:none``; an op without switches is its own only variant.
    name: str
    op: Op
    # The switches, as keyword arguments of the op.
    options: Mapping[str, Any]


def named(name: str) -> list[Variant]:
    """Return all variants of an op, or the one that is named.

    Raises
    ------
    KeyError
        If there is no such op or variant.
    """
    of_op = [each for each in VARIANTS.values() if each.op.name == name]
    return of_op or [VARIANTS[name]]


def variant(name: str) -> Variant:
    """Return the variant of a name; an op's name means its defaults."""
    return VARIANTS.get(name) or Variant(name, OPS[name], {})


def _variants() -> Iterator[Variant]:
    for name, op in OPS.items():
        switches = {each: _choices(kind) for each, kind in op.kinds.items() if _choices(kind)}
        for chosen in itertools.product(*switches.values()):
            options = dict(zip(switches, chosen, strict=True))
            yield Variant(":".join([name, *_labels(options)]), op, options)


def _choices(kind: ParameterKind) -> tuple[Any, ...]:
    return (False, True) if kind.role == "flag" else kind.choices


def _labels(options: dict[str, Any]) -> list[str]:
    """Return what tells a variant from others: a choice itself, and flags that are up by name."""
    return [name if value is True else str(value) for name, value in options.items() if value]


VARIANTS = {each.name: each for each in _variants()}
