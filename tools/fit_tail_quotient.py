"""Fit the quotient and the series of tail_quotient and tail_powers in kernel_constants.toml.

``Phi(-a) exp(a**2 / 2)`` is a smooth function g of a >= 0, falling like 1 / a. As
``factor * m(a) / (a * m(a) + n(a))``, with polynomials m and n, it needs few operations, and
rounding m moves both parts of the quotient: what is left of it in the result is n's share.

Run with NumPy and SciPy: ``python tools/fit_tail_quotient.py``. It prints the coefficients, highest
degree first, and the largest relative error with them, rounded to float32 as they are printed.
Constants are rounded one after the other, in an order found by trial, and those that are left are
fitted again each time.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import linprog
from scipy.special import erfcx

LARGEST = 12.5
# 2^(j/8) times this float32 is near to a float32 for each j, and it is near to the best factor.
FACTOR = float(np.float32(0.398948997))
OCTAVE = 2 * np.log(2)

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Errors = Callable[[Array], tuple[Array, Array]]


def main() -> None:
    m, n = [10.0, 45.7, 110.0, 127.3], [1e-3, 0.982, 10.26, 41.7, 101.6]
    fitted = fit(quotient_errors(4, 4), np.array([*m, *n]), [0, 4, 5, 1, 6, 2, 7, 3, 8])
    show("m", fitted[:4])
    show("n", fitted[4:])
    m, n = [6.4, 18.3, 23.3], [1.02, 6.1, 18.6]
    fitted = fit(quotient_errors(3, 2), np.array([*m, *n]), [0, 3, 1, 4, 2, 5])
    show("half_m", fitted[:3])
    show("half_n", fitted[3:])
    show("powers", FACTOR * 2 ** (np.arange(8) / 8))
    for entries, name, degree in (
        (8, "series", 4),
        (8, "half_series", 2),
        (1, "series", 6),
        (1, "half_series", 4),
    ):
        taylor = np.array([(-0.5) ** k / math.factorial(k) for k in range(degree, 0, -1)])
        fitted = fit(power_errors(entries, degree), taylor, range(degree)[::-1])
        show(f"{name} with {entries} powers", fitted)


def quotient_errors(degree: int, degree_of_n: int) -> Errors:
    """Return what finds the relative errors of constants m, n, and their derivatives.

    The coefficient of m's highest power is 1, and is not among the constants.
    """
    v = np.linspace(0, LARGEST / (LARGEST + 1.5), 1201)
    a = 1.5 * v / (1 - v)
    exact = erfcx(a / np.sqrt(2)) / 2
    powers_of_m, powers_of_n = np.vander(a, degree), np.vander(a, degree_of_n + 1)

    def errors(constants: Array) -> tuple[Array, Array]:
        m = a**degree + powers_of_m @ constants[:degree]
        n = powers_of_n @ constants[degree:]
        below = a * m + n
        scale = FACTOR / below / exact
        by_m, by_n = scale * n / below, -scale * m / below
        return scale * m - 1, np.hstack([by_m[:, None] * powers_of_m, by_n[:, None] * powers_of_n])

    return errors


def power_errors(entries: int, degree: int) -> Errors:
    """Return the same for s with exp(-r / 2) = 1 + r s(r), where r is within half an entry."""
    r = 1.0001 * OCTAVE / (2 * entries) * np.cos(np.pi * (np.arange(2000) + 0.5) / 2000)
    exact = np.exp(-r / 2)
    powers = np.vander(r, degree + 1)[:, :-1] / exact[:, None]
    return lambda constants: (1 / exact + powers @ constants - 1, powers)


def fit(errors: Errors, constants: Array, order: Sequence[int]) -> Array:
    """Return float32 numbers near to the constants with the smallest error, rounded in an order."""
    free = list(order)
    constants = improved(errors, constants, free, rounds=60)
    print(f"# relative error {largest(errors, constants):.3g}, ", end="")
    for i in order:
        free.remove(i)
        nearest = np.float32(constants[i])
        tried = []
        for value in (nearest, *(np.nextafter(nearest, np.float32(end)) for end in (-1e9, 1e9))):
            changed = constants.copy()
            changed[i] = value
            tried.append(improved(errors, changed, free, rounds=2))
        constants = min(tried, key=lambda each: largest(errors, each))
    print(f"rounded {largest(errors, constants):.3g}")
    return constants


def improved(errors: Errors, constants: Array, free: list[int], rounds: int) -> Array:
    """Return constants after linear programs that lower the largest error."""
    reach = 0.05
    for _ in range(rounds if free else 0):
        error, derivatives = errors(constants)
        size = np.maximum(np.abs(constants[free]), 1e-3)
        # In units in which the solver's own tolerance is of no account.
        unit = 1 / np.abs(error).max()
        steps = derivatives[:, free] * size * unit
        bound = -np.ones((len(error), 1))
        program = linprog(
            [*np.zeros(len(free)), 1],
            A_ub=np.vstack([np.hstack([steps, bound]), np.hstack([-steps, bound])]),
            b_ub=np.concatenate([-error, error]) * unit,
            bounds=[(-reach, reach)] * len(free) + [(0, None)],
        )
        if not program.success:
            break
        changed = constants.copy()
        changed[free] += program.x[:-1] * size
        if largest(errors, changed) < largest(errors, constants):
            constants = changed
        else:
            reach /= 4
    return constants


def largest(errors: Errors, constants: Array) -> float:
    return float(np.abs(errors(constants)[0]).max())


def show(name: str, constants: Array) -> None:
    print(f"{name} = [{', '.join(f'{float(np.float32(value)):.9g}' for value in constants)}]")


if __name__ == "__main__":
    main()
