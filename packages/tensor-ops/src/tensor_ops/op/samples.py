"""Samples of an op's arguments: values that a right implementation must cope with.

`arguments` draws natural arguments for any op from the kinds in its signature; the files in
``tensor_ops/ops`` add the samples that only they know about.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from tensor_ops.op.arguments import DTYPES, Declaration, ParameterKind

__all__ = ["WIDE_RANGE", "Draw", "Sample", "arguments"]

# The dtypes with at least the exponents of float32.
WIDE_RANGE = ("float32", "bfloat16", "float64")


class Draw:
    """Random arrays of one dtype, seeded by a case's name."""

    def __init__(self, dtype: str, case: str) -> None:
        self.dtype = DTYPES[dtype]
        self._seed = zlib.crc32(f"{case}/{dtype}".encode())
        self.random = np.random.default_rng(self._seed)

    def in_float32(self) -> Draw:
        """Return a draw of the same numbers from the beginning, rounded to float32 instead."""
        other = Draw("float32", "")
        other._seed = self._seed
        other.random = np.random.default_rng(self._seed)
        return other

    def normal(self, *shape: int, scale: float = 1.0) -> Any:
        """Return normally distributed values with standard deviation `scale`."""
        return self.cast(self.random.standard_normal(shape) * scale)

    def spread(self, *shape: int, low: float = -30, high: float = 30) -> Any:
        """Return values of both signs whose exponents of two are spread evenly."""
        exponents = self.random.uniform(low, high, shape)
        return self.cast(np.exp2(exponents) * self.random.choice([-1.0, 1.0], shape))

    def subnormal(self, *shape: int) -> Any:
        """Return small multiples of the dtype's smallest number."""
        import ml_dtypes

        smallest = float(ml_dtypes.finfo(self.dtype).smallest_subnormal)  # type: ignore[no-untyped-call]
        return self.cast(self.random.integers(-100, 101, shape) * smallest)

    def full(self, value: float, *shape: int) -> Any:
        """Return equal elements."""
        return self.cast(np.full(shape, value))

    def cast(self, values: Any) -> Any:
        """Return values in this dtype; what is too large becomes infinite."""
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(values).astype(self.dtype)


class Sample(NamedTuple):
    """A call that must give a right result.

    `make` returns the first arguments, or the very first alone; arrays that it leaves out are
    natural. `dtypes` limits it where its values need a range, and `not_for` names the backends
    whose library computes in steps that leave the range of the dtype.
    """

    name: str
    make: Callable[[Draw], Any]
    kwargs: Mapping[str, Any] = MappingProxyType({})
    dtypes: tuple[str, ...] = tuple(DTYPES)
    not_for: tuple[str, ...] = ()

    def values(self, op: Declaration, dtype: str, wide: Collection[str] = ()) -> dict[str, Any]:
        """Return the arguments by name, without `out`; those that `wide` names are float32."""

        def drawn(draw: Draw) -> dict[str, Any]:
            made = self.make(draw)
            given = made if isinstance(made, tuple) else (made,)
            required = [
                name for name, kind in op.kinds.items() if kind.is_array and not kind.optional
            ]
            rest = {
                name: _natural(op.kinds[name], given[0].shape, draw)
                for name in required[len(given) :]
            }
            values = op.bind(given, {**rest, **self.kwargs})
            del values["out"]
            return values

        return _mixed(drawn, Draw(dtype, f"{op.name}/{self.name}"), wide)


def arguments(
    op: Declaration, shape: tuple[int, ...], draw: Draw, wide: Collection[str] = ()
) -> dict[str, Any]:
    """Return natural array arguments for `op` at a shape, by name; the rest keeps its default.

    Those that `wide` names are float32.
    """

    def drawn(draw: Draw) -> dict[str, Any]:
        return {
            name: _natural(kind, shape, draw) for name, kind in op.kinds.items() if kind.is_array
        }

    return _mixed(drawn, draw, wide)


def _natural(kind: ParameterKind, shape: tuple[int, ...], draw: Draw) -> Any:
    """Return a natural array for an argument beside a result of this shape."""
    if kind.is_full:
        return draw.normal(*shape, scale=3.0)
    if kind.role == "row_vector":
        return draw.normal(shape[-1])
    # (positions, heads, n): an angle for each position and pair, the same for every head
    angles = (*shape[-3:-1], shape[-1] // 2)
    angles = (angles[0], 1, angles[2]) if len(angles) == 3 else angles
    return draw.cast(draw.random.uniform(-1, 1, angles))


def _mixed(
    drawn: Callable[[Draw], dict[str, Any]], draw: Draw, wide: Collection[str]
) -> dict[str, Any]:
    """Return what is drawn, with the arguments that `wide` names drawn in float32."""
    values = drawn(draw)
    if wide:
        in_float32 = drawn(draw.in_float32())
        values |= {name: in_float32[name] for name in wide}
    return values
