"""Rounding errors of products and differences in float64."""

from typing import Any

import numpy as np

__all__ = [
    "add_where_finite",
    "difference_error",
    "exp_and_exponent",
    "exp_of_sum",
    "product_error",
    "sum_error",
]

Array = np.ndarray[Any, Any]

# Rounds to the upper 26 of the 53 significant bits: what is left over has 26 with its sign, and
# products of these halves are exact. Unlike Dekker's multiplication, this rarely overflows.
_HALF = np.uint64(0x0400_0000)
_UPPER = np.uint64(0xFFFF_FFFF_F800_0000)

# log(2) in two, the first of so few bits that its products with exponents are exact.
_LOG_2, _LOG_2_REST = 0.6931471803691238, 1.9082149292705877e-10
# Below this exp may be too small for what it is multiplied by.
_DEEP = -700


def product_error(a: Array, b: Array | np.float64, product: Array) -> Array:
    """Return ``a * b - product`` for the rounded product; NaN where that is not finite."""
    a_high, b_high = _upper(a), _upper(b)
    a_low, b_low = a - a_high, b - b_high
    error: Array = a_high * b_high
    error -= product
    error += a_high * b_low
    error += a_low * b_high
    error += a_low * b_low
    return error


def difference_error(a: Array, b: Array, difference: Array) -> Array:
    """Return ``a - b - difference`` for the rounded difference; NaN where that is not finite."""
    subtracted = a - difference
    error: Array = a - (difference + subtracted)
    error += subtracted - b
    return error


def sum_error(a: Array, b: float, total: Array) -> Array:
    """Return ``a + b - total`` for the rounded sum; NaN where that is not finite."""
    added = total - a
    error: Array = a - (total - added)
    error += b - added
    return error


def exp_of_sum(high: Array, low: Array | float) -> Array:
    """Return ``exp(high + low)`` for a `low` so small that its square does not count."""
    power: Array = np.exp(high)
    return add_where_finite(power, power * low)


def exp_and_exponent(high: Array, low: Array | float = 0.0) -> tuple[Array, Array]:
    """Return ``exp(high + low)`` as a number and the exponent of a power of two to multiply it by.

    The exponent is 0 unless the product is tiny. What the tiny one is multiplied by comes first,
    and `numpy.ldexp` last, so that digits are lost only if the result is subnormal itself. The
    number is then so small that the largest one may be multiplied by it and by 10,000. `high` is
    finite and `low` as in `exp_of_sum`.
    """
    is_deep = high < _DEEP
    if not is_deep.any():
        return exp_of_sum(high, low), np.zeros((), np.int32)
    exponent = np.where(is_deep, np.rint(high / _LOG_2), 0)
    rest = (high - exponent * _LOG_2) - exponent * _LOG_2_REST
    power = exp_of_sum(rest, low) * np.where(is_deep, 2.0**-16, 1)
    return power, np.where(is_deep, exponent + 16, 0).astype(np.int32)


def add_where_finite(result: Array, correction: Array) -> Array:
    """Add a correction in place, but not where infinities have made it NaN or infinite."""
    result += np.where(np.isfinite(correction), correction, 0)
    return result


def _upper(a: Array | np.float64) -> Any:
    return ((a.view(np.uint64) + _HALF) & _UPPER).view(np.float64)
