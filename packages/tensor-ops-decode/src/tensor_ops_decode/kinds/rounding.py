"""How far the rounding errors of an executor may go: what the bounds of the nodes are made of."""

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["UNIT", "bound_of", "dot_bound", "exact", "of_magnitude"]

Array = np.ndarray[Any, Any]

#: The unit roundoff of float32.
UNIT = 2.0**-24

# Products with integer weights round activations in blocks of so many elements.
_BLOCK = 32
# The largest error of a rounded activation, by the largest magnitude of its block.
_STEP = {"float32": 0.0, "int8": 0.5 / 127, "int8x2": 0.5 / (127 * 254)}


def of_magnitude(magnitude: Array, roundings: float) -> Array:
    """Return the bound of so many roundings of numbers of this magnitude."""
    return magnitude * (roundings * UNIT) + 2.0**-126


def bound_of(roundings: float) -> Callable[[object, Array, str], Array]:
    """Return the bound of a kind whose outputs are off by so many roundings of themselves."""
    return lambda call, output, activations: of_magnitude(np.abs(output), roundings)


def exact(call: object, output: Array, activations: str) -> Array:
    """Return the bound of a kind whose outputs have no error."""
    return np.zeros(output.shape)


def dot_bound(x: Array, weight: Array, activations: str) -> Array:
    r"""Return the bound of ``weight @ x``.

    Parameters
    ----------
    x : ndarray, shape (columns,)
    weight : ndarray, shape (rows, columns)
    activations : {"float32", "int8", "int8x2", "bfloat16"}
        What `x` is rounded to before the product.

    Notes
    -----
    A sum of n products in float32 is off by at most :math:`n u \sum |w_i x_i|`; rounding errors
    being as good as independent, it is off by :math:`4 \sqrt{n} u \sum |w_i x_i|` in practice
    (Higham and Mary, "A new approach to probabilistic rounding error analysis", 2019), which is the
    bound here.
    """
    magnitude = np.abs(weight)
    columns = len(x)
    bound = of_magnitude(magnitude @ np.abs(x), 4 * columns**0.5 + 8)
    if activations == "bfloat16":
        bound += magnitude @ (np.abs(x) * 2.0**-8 + 2.0**-126)
    elif _STEP[activations]:
        padded = np.zeros(-(-columns // _BLOCK) * _BLOCK)
        padded[:columns] = np.abs(x)
        largest = padded.reshape(-1, _BLOCK).max(axis=1).repeat(_BLOCK)[:columns]
        bound += magnitude @ (largest * _STEP[activations])
    return bound
