"""Measured cases: every op and variant of the op table, at the shapes of an LLM."""

import functools
import itertools
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from tensor_ops.op import Op
from tensor_ops.op.arguments import DTYPES
from tensor_ops.variants import VARIANTS

__all__ = [
    "ALLOCATED",
    "HEAD_DIM",
    "MODES",
    "REUSED",
    "SHAPES",
    "THREADS",
    "Case",
    "arguments",
    "cases",
    "moved_bytes",
    "outputs",
    "own_shape",
    "tails",
    "with_tails",
]

SHAPES = ((1, 64), (1, 4096), (128, 4096), (2048, 4096), (8192, 4096))
THREADS = (1, 2)
# The result is new and dropped at once, or goes into memory that was there before.
ALLOCATED, REUSED = "allocated", "reused"
MODES = (ALLOCATED, REUSED)
HEAD_DIM = 128

# Rows beyond these repeat them: drawing all would take longer than timing them.
DISTINCT_ROWS = 256


@dataclass(frozen=True)
class Case:
    """One variant at one dtype, shape and number of threads, in one of the modes."""

    variant: str
    dtype: str
    shape: tuple[int, ...]
    threads: int
    mode: str

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape))
        return f"{self.variant} {shape} {self.dtype} {self.mode}, threads: {self.threads}"

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Case":
        """Return the case that `as_dict` was called on, other keys being ignored."""
        fields = {name: values[name] for name in cls.__dataclass_fields__}
        return cls(**fields | {"shape": tuple(values["shape"])})

    def as_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can hold."""
        return asdict(self)


def cases(
    variants: Iterable[str] = VARIANTS,
    dtypes: Iterable[str] = DTYPES,
    shapes: Iterable[tuple[int, ...]] = SHAPES,
    threads: Iterable[int] = THREADS,
    modes: Iterable[str] = MODES,
) -> list[Case]:
    """Return every case, those with the same inputs next to each other."""
    product = itertools.product(threads, dtypes, shapes, variants, modes)
    return [
        Case(variant, dtype, shape, number, mode) for number, dtype, shape, variant, mode in product
    ]


def arguments(case: Case) -> dict[str, Any]:
    """Return the arrays of a case by name, the same in every process."""
    op = VARIANTS[case.variant].op
    values: dict[str, Any] = {}
    full = own_shape(op, case.shape)
    for name, kind in op.kinds.items():
        if kind.is_full:
            index = sum(op.kinds[other].is_full for other in values)
            values[name] = _rows(case.shape, case.dtype, index).reshape(full)
        elif kind.role == "row_vector":
            values[name] = _vector(case.shape[-1], case.dtype, len(values))
        elif kind.role == "half_rows":
            turned = np.sin if "sin" in name else np.cos
            values[name] = turned(_angles(full)).astype(DTYPES[case.dtype])
    return values


def tails(case: Case) -> Case:
    """Return the small case on which the errors of a case are measured; see `with_tails`."""
    return replace(case, shape=(16, 4096))


def with_tails(case: Case) -> dict[str, Any]:
    """Return the arrays of a case, those of elementwise ops stretched to cover -30 to 30."""
    kinds = VARIANTS[case.variant].op.kinds
    return {
        name: _stretched(value, 30.0) if kinds[name].role == "elements" else value
        for name, value in arguments(case).items()
    }


def outputs(case: Case, values: dict[str, Any]) -> tuple[Any, ...]:
    """Return memory for the results of a case, every page of it touched."""
    op = VARIANTS[case.variant].op
    made = tuple(np.empty_like(values[like]) for like in op.results_like)
    for array in made:
        array.fill(0)
    return made


def moved_bytes(case: Case) -> int:
    """Return how many bytes an op must read and write at the least.

    Vectors that serve every row stay in the cache and are not counted.
    """
    op = VARIANTS[case.variant].op
    elements = math.prod(case.shape)
    streams = elements * (op.outputs + sum(kind.is_full for kind in op.kinds.values()))
    halves = sum(kind.role == "half_rows" for kind in op.kinds.values())
    streams += halves * math.prod(_angles_shape(own_shape(op, case.shape)))
    return streams * DTYPES[case.dtype].itemsize


def own_shape(op: Op, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return (rows, heads, head dim) for ops on heads, any other shape as it is."""
    if not any(kind.role == "half_rows" for kind in op.kinds.values()):
        return shape
    rows, n = shape
    return (rows, n // HEAD_DIM, HEAD_DIM) if n % HEAD_DIM == 0 else (rows, 1, n)


def _angles_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[0], 1, shape[-1] // 2)


def _angles(shape: tuple[int, ...]) -> Any:
    rows, _, half = _angles_shape(shape)
    frequencies = 10_000.0 ** -(np.arange(half) / half)
    return (np.arange(rows)[:, None] * frequencies)[:, None, :]


# The last two arrays are kept, since the cases of one dtype and shape follow each other.
@functools.lru_cache(maxsize=2)
def _rows(shape: tuple[int, ...], dtype: str, index: int) -> Any:
    random = np.random.default_rng(index)
    distinct = random.standard_normal((min(shape[0], DISTINCT_ROWS), shape[-1])) * 2
    block = distinct.astype(DTYPES[dtype])
    rows = np.empty(shape, block.dtype)
    for start in range(0, len(rows), len(block)):
        rows[start : start + len(block)] = block[: len(rows) - start]
    return rows


def _vector(n: int, dtype: str, index: int) -> Any:
    return np.random.default_rng(100 + index).standard_normal(n).astype(DTYPES[dtype])


def _stretched(array: Any, largest: float) -> Any:
    wide = array.astype(np.float64)
    return (wide * (largest / np.abs(wide).max())).astype(array.dtype)
