"""Real arguments of ops as the numbers that kernels take."""

import math
from fractions import Fraction
from typing import Any

import numpy as np

__all__ = ["eps_parts", "scale_parts"]

Real = type[np.floating[Any]]

LOG2_E = Fraction("1.442695040888963407359924681001892137426645954152985934")
#: Between these, products of a scale have digits to spare.
LEAST_ORDINARY, MOST_ORDINARY = 2.0**-60, 2.0**60


def eps_parts(real: Real, eps: float) -> tuple[np.generic, ...]:
    """Return eps as mantissa and exponent, which float32 could not hold as one number."""
    mantissa, exponent = math.frexp(eps)
    return real(mantissa), np.int32(exponent)


def scale_parts(real: Real, scale: float) -> tuple[np.generic, ...]:
    """Return log2(e) times a scale, if it is ordinary, and the mantissa of any, as hi + lo.

    Then whether it is ordinary, and its exponent: float32 could not hold it as one number.
    """
    is_ordinary = LEAST_ORDINARY < scale < MOST_ORDINARY
    factor = Fraction(scale) * LOG2_E if is_ordinary else Fraction(0)
    # Zero may have any exponent: one with which no difference overflows.
    mantissa, exponent = math.frexp(scale) if scale else (0.0, -2)
    halves = *_in_two(real, factor), *_in_two(real, Fraction(mantissa))
    return *halves, np.int32(is_ordinary), np.int32(exponent)


def _in_two(real: Real, number: Fraction) -> tuple[np.floating[Any], np.floating[Any]]:
    hi = real(float(number))
    return hi, real(float(number - Fraction(float(hi))))
