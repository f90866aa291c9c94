"""Types for argparse: what a user writes on the command line, checked and converted."""

import math
from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import TypeVar

from tensor_ops import backends
from tensor_ops.backends.names import AUTO, AUTOMATIC, did_you_mean, resolve
from tensor_ops.config import repeated
from tensor_ops.errors import ConfigError
from tensor_ops.op import OPS
from tensor_ops.op.arguments import DTYPES
from tensor_ops.variants import VARIANTS

__all__ = [
    "backend",
    "backend_or_auto",
    "count",
    "dtype",
    "op",
    "priority",
    "seconds",
    "separated",
    "shape",
]

T = TypeVar("T")

# Elements of an array that some machine could hold.
LARGEST = 2**40


def backend(text: str) -> str:
    """Return the backend's own name for a name or an alias."""
    try:
        return resolve(text, backends.INSTALLED)
    except ConfigError as error:
        raise ArgumentTypeError(str(error)) from None


def backend_or_auto(text: str) -> str:
    """Return a backend's name or alias as it was written, ``auto`` or ``fastest``."""
    if text not in AUTOMATIC:
        backend(text)
    return text


def priority(text: str) -> list[str] | str:
    """Return the names of a comma-separated list as they were written, or ``auto``."""
    names = [name.strip() for name in text.split(",")]
    if names == [AUTO]:
        return AUTO
    if "" in names:
        raise ArgumentTypeError(
            f"{text!r} has an empty place; write names with a comma between them: "
            "cuda,opencl,cpp,python"
        )
    if automatic := set(names).intersection(AUTOMATIC):
        name = automatic.pop()
        raise ArgumentTypeError(
            f"{name!r} is no backend; it is what --backend={name} is for, and --priority={AUTO} "
            "takes the order out of the file"
        )
    for name in names:
        backend(name)
    if problem := repeated(names):
        raise ArgumentTypeError(f"{text!r} {problem}")
    return names


def op(text: str) -> str:
    """Return the name of an op or of a variant of one; dashes stand for underscores."""
    name = text.replace("-", "_")
    if name in OPS or name in VARIANTS:
        return name
    hint = did_you_mean(name, [*OPS, *VARIANTS])
    raise ArgumentTypeError(f"there is no op {text!r}; {hint}The ops: {', '.join(VARIANTS)}")


def dtype(text: str) -> str:
    """Return the name of a dtype that the ops take."""
    if text not in DTYPES:
        raise ArgumentTypeError(f"no op takes {text!r}; the dtypes: {', '.join(DTYPES)}")
    return text


def shape(text: str) -> tuple[int, ...]:
    """Return the shape that ``128x4096`` stands for."""
    sizes = text.lower().split("x")
    if not all(size.isascii() and size.isdigit() and int(size) > 0 for size in sizes):
        raise ArgumentTypeError(f"{text!r} is no shape; write positive sizes like 128x4096")
    result = tuple(int(size) for size in sizes)
    if math.prod(result) > LARGEST or len(result) > 32:
        raise ArgumentTypeError(f"{text!r} is too large for an array")
    return result


def count(text: str) -> int:
    """Return a positive whole number."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def seconds(text: str) -> float:
    """Return a positive, finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return value


def separated(kind: Callable[[str], T]) -> Callable[[str], list[T]]:
    """Return a type for comma-separated values of `kind`."""

    def convert(text: str) -> list[T]:
        return [kind(part.strip()) for part in text.split(",")]

    return convert
