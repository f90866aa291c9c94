"""Products with the distribution function of the normal distribution, exact in both tails."""

from typing import Any

import numpy as np

from tensor_ops.numerics.rounding import exp_and_exponent, product_error, sum_error

__all__ = ["gelu_derivative_terms_times", "gelu_derivative_times", "gelu_of", "gelu_times"]

Array = np.ndarray[Any, Any]

# Below this gelu(x) is x / 2 to the last place.
TINY = 1e-290

# The lower tail is exp(-a**2 / 2) * t * q(s) with t = C / (C + a) and s = 1 - 2 t; the polynomials
# q, highest power first, are from tools/fit_erfcx.py.
C = 5.0
# Relative error 1.4e-8, at most a quarter of an ULP of float32, for a <= 20.
SHORT = (
    8.745593875722696e-05,
    -0.000179534696296547,
    -0.0005851690017065474,
    0.004170124609605546,
    -0.013827356723833189,
    0.03300172248625362,
    -0.06270619861094703,
    0.09906128718998516,
    -0.13307651679027235,
    0.15383860825866977,
)
# Relative error 1.5e-17 for a <= LAST, where the tail is zero in float64.
LONG = (
    3.9706825641479673e-10,
    1.4232321781538001e-09,
    -2.033699009061995e-09,
    -1.3026477428573454e-08,
    8.724900452099284e-09,
    8.649181524180363e-08,
    -6.756189416361102e-08,
    -5.537803627600138e-07,
    7.963102138050811e-07,
    3.336216350241487e-06,
    -9.95260742996065e-06,
    -1.1875138999850186e-05,
    0.00010897982254263324,
    -0.00015957388081819658,
    -0.0005986753553364548,
    0.004159013360097875,
    -0.013823727741175398,
    0.03300407323406986,
    -0.06270663133426366,
    0.09906112319399545,
    -0.13307650057801132,
    0.15383860995001258,
)
LAST = 40.0
ROOT_HALF_OVER_PI = 0.3989422804014327

# 2 sqrt(2 / pi) and 0.044715 times that. The high parts are on such grids that, with a <= TANH_LAST
# on a grid of 1/256, A_HIGH a + B_HIGH a**3 is free of rounding.
A = 1.5957691216057308
A_HIGH, A_LOW = 1.5957691216026433, 3.0874305383944692e-12
B = 0.07135481627260025
B_HIGH, B_LOW = 0.07135391235351562, 9.039190846237764e-07
# Where exp(-(A a + B a**3)) is zero in float64.
TANH_LAST = 22.0
# Where the tails are zero, even times the largest number twice.
ENDS, TANH_ENDS = 66.0, 31.25
# Below these gelu may be too small for what it is multiplied by.
DEEP = {"tanh": -20.5, "none": -37.0}


def gelu_of(x: Array, approximate: str, digits: np.dtype[Any], out: Array | None = None) -> Array:
    """Return x times the distribution function at x, in `out` if given, which may be `x` itself.

    Parameters
    ----------
    x : numpy.ndarray
        float64.
    approximate : {"tanh", "none"}
    digits : numpy.dtype
        The dtype that the result is for, rounded later. In a tail, a rounded argument of exp costs
        float64 its last digits; the shorter dtypes never see that, and are spared the work.
    """
    infinite = np.isinf(x)
    limits = np.where(x[infinite] > 0, np.inf, -0.0) if infinite.any() else None
    result = _FORMULAS[approximate, digits == np.float64](x, out)
    if limits is not None:
        result[infinite] = limits
    return result


def gelu_times(gate: Array, up: Array, approximate: str, dtype: Any) -> Array:
    """Return gelu of a gate times a second input, both in float64, of numbers of a dtype."""
    # The shorter dtypes' numbers all have normal halves in float64.
    is_special = dtype == np.float64 or np.isinf(up).any()
    special = _products_of_no_normal_factor(gate, up) if is_special else None
    result: Array = gelu_of(gate, approximate, dtype) * up
    if special is not None:
        places, products = special
        result[places] = products
    if dtype == np.float64:
        deep = (gate < DEEP[approximate]) & np.isfinite(gate)
        if deep.any():
            result[deep] = _tail_times(gate[deep], up[deep], approximate)
    return result


def _tail_times(gate: Array, up: Array, approximate: str) -> Array:
    """Return gelu of a gate below zero times a second input, right also if gelu alone is tiny."""
    tail_of, end = _TAILS[approximate]
    a = np.minimum(np.abs(gate), end)
    tail, exponent = tail_of(a)
    result: Array = np.ldexp((-a * tail) * up, exponent)
    return result


def _products_of_no_normal_factor(gate: Array, up: Array) -> tuple[Array, Array]:
    """Return where gelu(gate) alone loses its digits or becomes zero, and the products there."""
    # However small, a tail that is not zero keeps an infinity infinite.
    infinite = np.isinf(up) & (gate < 0) & np.isfinite(gate)
    # Near zero gelu halves: of the product, since half of the smallest numbers is rounded.
    tiny = (np.abs(gate) < TINY) & (gate != 0)
    places = infinite | tiny
    gate, up = gate[places], up[places]
    return places, np.where(np.abs(gate) < TINY, gate * up * 0.5, -up)


def gelu_derivative_times(
    x: Array, factor: Array, approximate: str, exponent: Array | int = 0
) -> Array:
    """Return the derivative of `gelu_of` at `x`, times `factor` and two to the power `exponent`.

    `x` and `factor` are of float64.
    """
    slope, _, of_slope = _DERIVATIVES[approximate](x)
    product = slope * factor
    # At minus infinity the derivative is 0, the limit.
    product *= np.where(np.isneginf(x), 0, 1)
    # However small, a tail that is not zero keeps an infinity infinite.
    result: Array = np.ldexp(product, of_slope + exponent)
    return result


def gelu_derivative_terms_times(
    x: Array, factor: Array, approximate: str, exponent: Array | int = 0
) -> Array:
    """Return the magnitudes of the terms of the derivative of `gelu_of`, added up.

    They are times `factor` and two to the power `exponent`; all is of float64.
    """
    _, terms, of_terms = _DERIVATIVES[approximate](x)
    magnitudes: Array = np.ldexp(terms * factor, of_terms + exponent)
    return magnitudes


def _tanh_derivative(x: Array) -> tuple[Array, Array, Array]:
    """Return the derivative and its terms, and the exponent of the power of two of both."""
    a = np.minimum(np.abs(x), TANH_ENDS)
    argument, rest = _tanh_argument(a)
    power, exponent = exp_and_exponent(-argument, -rest)
    larger = 1 / (1 + np.ldexp(power, exponent))
    smaller = power * larger
    below = x < 0
    sigmoid = np.where(below, smaller, larger)
    part = a * (A + 3 * B * a * a) * np.where(below, larger, np.ldexp(smaller, exponent))
    slope = sigmoid * (1 + np.where(below, -part, part))
    return slope, sigmoid * (1 + part), np.where(below, exponent, 0)


def _erf_derivative(x: Array) -> tuple[Array, Array, Array]:
    """Return the derivative and its terms, and the exponent of the power of two of both."""
    a = np.minimum(np.abs(x), ENDS)
    power, exponent = _exp_of_half_square(a)
    tail, moment = power * _any_mills_ratio(a), a * power
    moment *= ROOT_HALF_OVER_PI
    below = x < 0
    above = 1 + np.ldexp(moment - tail, exponent)
    slope = np.where(below, tail - moment, above)
    terms = np.where(below, tail + moment, above)
    return slope, terms, np.where(below, exponent, 0)


def _tanh(x: Array, out: Array | None) -> Array:
    """Return x * sigmoid(A x + B x**3), which is the approximation by tanh."""
    power = np.square(x)
    power *= -B
    power -= A
    power *= x
    np.exp(power, out=power)
    power += 1
    return np.divide(x, power, out=out)


def _tanh_float64(x: Array, out: Array | None) -> Array:
    a = np.minimum(np.abs(x), TANH_LAST)
    return _without_tail(x, a, *_tanh_tail(a), out)


def _tanh_tail(a: Array) -> tuple[Array, Array]:
    """Return the sigmoid of ``-(A a + B a**3)``, and the exponent of its power of two."""
    argument, rest = _tanh_argument(a)
    power, exponent = exp_and_exponent(-argument, -rest)
    return power / (1 + np.ldexp(power, exponent)), exponent


def _tanh_argument(a: Array) -> tuple[Array, Array]:
    """Return ``A a + B a**3`` as a sum of two."""
    high = np.rint(a * 256) / 256
    square = high * high
    exact = high * (A_HIGH + B_HIGH * square)
    rest = (a - high) * (A + B * (a * a + a * high + square))
    rest += high * (A_LOW + B_LOW * square)
    argument = exact + rest
    rest -= argument - exact
    return argument, rest


def _erf(x: Array, out: Array | None) -> Array:
    a = np.abs(x)
    power = np.square(a)
    power *= -0.5
    np.exp(power, out=power)
    return _without_tail(x, a, _multiply_by_short_ratio(power, a), None, out)


def _erf_float64(x: Array, out: Array | None) -> Array:
    a = np.minimum(np.abs(x), LAST)
    return _without_tail(x, a, *_erf_tail(a), out)


def _erf_tail(a: Array) -> tuple[Array, Array]:
    """Return the distribution function at -a, and the exponent of its power of two."""
    power, exponent = _exp_of_half_square(a)
    return power * _any_mills_ratio(a), exponent


def _exp_of_half_square(a: Array) -> tuple[Array, Array]:
    """Return ``exp(-a**2 / 2)`` as `exp_and_exponent` does."""
    square = a * a
    return exp_and_exponent(-0.5 * square, -0.5 * product_error(a, a, square))


def _any_mills_ratio(a: Array) -> Array:
    """Return the tail over ``exp(-a**2 / 2)``, also from `LAST` on."""
    ratio, is_far = _mills_ratio(a), a > LAST
    return np.where(is_far, _far_mills_ratio(a), ratio) if is_far.any() else ratio


def _mills_ratio(a: Array) -> Array:
    """Return the tail over ``exp(-a**2 / 2)``, about 3 ULP off at the most."""
    total, difference = a + C, a - C
    s = difference / total
    ratio = _horner(s, LONG)
    ratio *= 0.5 * (1 - s)
    # Rounded, s belongs to another a; the ratio's slope is a * ratio - 1 / sqrt(2 pi).
    product = s * total
    apart = (product - difference) + product_error(s, total, product)
    apart += s * sum_error(a, C, total) - sum_error(a, -C, difference)
    apart *= total
    apart /= 2 * C
    ratio -= (a * ratio - ROOT_HALF_OVER_PI) * apart
    return ratio


def _far_mills_ratio(a: Array) -> Array:
    """Return the tail over ``exp(-a**2 / 2)`` from `LAST` on, by the first terms of its series."""
    inverse = -1 / (a * a)
    total = np.ones_like(a)
    for odd in (13, 11, 9, 7, 5, 3, 1):
        total = 1 + odd * inverse * total
    ratio: Array = ROOT_HALF_OVER_PI / a * total
    return ratio


def _without_tail(
    x: Array, a: Array, tail: Array, exponent: Array | None, out: Array | None
) -> Array:
    """Return ``max(x, 0) - a * tail``, where a is abs(x) up to where the tail is zero.

    The exponent, if there is one, is of a power of two that belongs to the tail, the distribution
    function at -a.
    """
    tail *= a
    if exponent is not None:
        np.ldexp(tail, exponent, out=tail)
    # -0.0 rather than 0, so that a tail of zero leaves the sign.
    return np.subtract(np.where(x < 0, -0.0, x), tail, out=out)


def _multiply_by_short_ratio(power: Array, a: Array) -> Array:
    """Multiply ``exp(-a**2 / 2)`` by ``t * q(s)``, in place."""
    t = a + C
    np.divide(C, t, out=t)
    power *= t
    s = t
    s *= -2
    s += 1
    power *= _horner(s, SHORT)
    return power


def _horner(s: Array, coefficients: tuple[float, ...]) -> Array:
    value = s * coefficients[0]
    for coefficient in coefficients[1:-1]:
        value += coefficient
        value *= s
    value += coefficients[-1]
    return value


_FORMULAS = {
    ("tanh", False): _tanh,
    ("tanh", True): _tanh_float64,
    ("none", False): _erf,
    ("none", True): _erf_float64,
}
_TAILS = {"tanh": (_tanh_tail, TANH_ENDS), "none": (_erf_tail, ENDS)}
_DERIVATIVES = {"tanh": _tanh_derivative, "none": _erf_derivative}
