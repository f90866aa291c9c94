"""Calls that are measured, and the arrays for them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from comparison.cases import Case, moved_bytes, own_shape
from tensor_ops import variants

__all__ = [
    "BANDWIDTH",
    "CALL",
    "DECODE",
    "DTYPES",
    "GRAPH",
    "HOST",
    "HOST_ARRAYS",
    "LARGE",
    "LLAMA_CPP",
    "LONG_ROWS",
    "Part",
    "TRANSFORMERS",
    "VARIANTS",
    "angles_of",
    "arrays_of",
    "bandwidth",
    "beside_peers",
    "moved",
    "number_of_sets",
]

# Without derivatives, which no backend of a GPU has.
VARIANTS = {name: each for name, each in variants.VARIANTS.items() if each.op.derivative_of is None}

# Beside a copy of the same bytes; beside other libraries, called as their users do, or replayed in
# a graph; what a call costs the host; NumPy arrays; decode steps of a model.
BANDWIDTH, CALL, GRAPH, HOST, HOST_ARRAYS = "bandwidth", "call", "graph", "host", "numpy"
DECODE = "decode"
LLAMA_CPP, TRANSFORMERS = "llama.cpp", "transformers"

DEVICE = "cuda"
DTYPES = ("bfloat16", "float32")
TRAFFIC = 512 * 2**20
ROW_LENGTHS = (1024, 4096, 16384)
LONG_ROWS = 65536
SMALL = ((1, 4096), (16, 4096), (128, 4096))
LARGE = (16384, 8192)


@dataclass(frozen=True)
class Part:
    """One variant at one dtype and shape, measured in one way."""

    way: str
    variant: str
    dtype: str
    shape: tuple[int, int]

    @property
    def case(self) -> Case:
        return Case(self.variant, self.dtype, self.shape, 1, "")

    def as_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can hold."""
        values = {"way": self.way, "variant": self.variant, "dtype": self.dtype}
        return values | {"shape": list(self.shape), "bytes": moved(self)}


def bandwidth() -> Iterator[Part]:
    """Yield what is measured beside a copy: whole rows, about `TRAFFIC` bytes."""
    for n in (*ROW_LENGTHS, LONG_ROWS):
        for dtype in DTYPES:
            for variant in VARIANTS:
                per_row = moved(Part(BANDWIDTH, variant, dtype, (1024, n))) / 1024
                yield Part(BANDWIDTH, variant, dtype, (round(TRAFFIC / per_row), n))


def beside_peers() -> Iterator[Part]:
    """Yield what is measured beside other libraries, what matters most first."""
    for dtype in DTYPES:
        for shape in (LARGE, *SMALL):
            for variant in VARIANTS:
                yield Part(CALL, variant, dtype, shape)
                yield Part(GRAPH, variant, dtype, shape)


def moved(part: Part) -> int:
    """Return how many bytes the op must read and write at the least."""
    return moved_bytes(part.case)


def arrays_of(part: Part, torch: Any) -> dict[str, Any]:
    """Return new tensors on the GPU by name, normally distributed; rope has positions' angles."""
    op = VARIANTS[part.variant].op
    full = own_shape(op, part.shape)
    options = {"device": DEVICE, "dtype": getattr(torch, part.dtype)}
    values: dict[str, Any] = {}
    for name, kind in op.kinds.items():
        if kind.is_full:
            values[name] = torch.empty(full, **options).normal_(0, 2)
        elif kind.role == "row_vector":
            values[name] = torch.empty(part.shape[-1], **options).normal_()
        elif kind.role == "half_rows":
            angles = angles_of(full, torch)
            values[name] = (angles.sin() if "sin" in name else angles.cos()).to(options["dtype"])
    return values


def angles_of(shape: tuple[int, ...], torch: Any) -> Any:
    """Return the angles of (rows, 1, head dim / 2)."""
    half = shape[-1] // 2
    frequencies = 10_000.0 ** -(torch.arange(half, device=DEVICE) / half)
    return torch.arange(shape[0], device=DEVICE)[:, None, None] * frequencies


def number_of_sets(part: Part, cache: int) -> int:
    """Return how many sets of arrays to use in turn, so that no cache holds them where it may."""
    return max(2, min(16, math.ceil(4 * cache / moved(part))))
