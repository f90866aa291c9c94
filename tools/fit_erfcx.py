"""Fit the polynomials of normal_distribution.py and print them with their errors.

The lower tail of the normal distribution is ``exp(-a**2 / 2) * g(a)`` for a >= 0, with
``g(a) = erfcx(a / sqrt(2)) / 2``. With ``t = C / (C + a)`` the quotient g / t is smooth and of one
magnitude in ``s = 1 - 2 t``, so that one polynomial in s serves every a up to the last one whose
tail is not zero, and its evaluation loses no digits. Remez exchange minimizes the largest
relative error; mpmath's 40 digits leave it free of rounding.

Run with ``python tools/fit_erfcx.py``; needs mpmath.
"""

import mpmath as mp

mp.mp.dps = 40

C = 5
# Name, degree, largest a. Products of float32 values stay normal numbers up to a tail of 1e-77,
# which is a = 18.6; in float64 the tail itself is zero from a = 38.6 on.
FITS = [("SHORT", 9, 20), ("LONG", 21, 40)]


def main() -> None:
    for name, degree, largest in FITS:
        coefficients, error = remez(degree, -1, 1 - 2 * mp.mpf(C) / (C + largest))
        print(f"# Relative error {mp.nstr(error, 2)} for a <= {largest}.")
        print(f"{name} = (")
        for coefficient in coefficients:
            print(f"    {float(coefficient)!r},")
        print(")")


def quotient(s: mp.mpf) -> mp.mpf:
    """Return g(a) / t for s = 1 - 2 t."""
    t = (1 - s) / 2
    z = (C / t - C) / mp.sqrt(2)
    return mp.exp(z * z) * mp.erfc(z) / 2 / t


def remez(degree: int, low: mp.mpf, high: mp.mpf) -> tuple[list[mp.mpf], mp.mpf]:
    """Return the polynomial for g / t, highest power first, and its largest relative error."""
    nodes = chebyshev(degree + 2, low, high)
    grid = chebyshev(40 * degree + 1, low, high)
    values = [quotient(s) for s in grid]
    for _ in range(20):
        coefficients, levelled = level(nodes)
        errors = [mp.polyval(coefficients, s) / y - 1 for s, y in zip(grid, values, strict=True)]
        largest = max(map(abs, errors))
        if largest < abs(levelled) * mp.mpf("1.01"):
            break
        nodes = extremes(grid, errors)
    return coefficients, largest


def chebyshev(count: int, low: mp.mpf, high: mp.mpf) -> list[mp.mpf]:
    """Return the extremes of a Chebyshev polynomial on [low, high]."""
    return [(low + high - (high - low) * mp.cos(mp.pi * i / (count - 1))) / 2 for i in range(count)]


def level(nodes: list[mp.mpf]) -> tuple[list[mp.mpf], mp.mpf]:
    """Return the polynomial whose relative errors at the nodes are equal and alternate."""
    size = len(nodes)
    matrix, right = mp.matrix(size), mp.matrix(size, 1)
    for i, s in enumerate(nodes):
        y = quotient(s)
        for j in range(size - 1):
            matrix[i, j] = s ** (size - 2 - j)
        matrix[i, size - 1] = (-1) ** i * y
        right[i] = y
    solution = mp.lu_solve(matrix, right)
    return list(solution)[:-1], solution[size - 1]


def extremes(grid: list[mp.mpf], errors: list[mp.mpf]) -> list[mp.mpf]:
    """Return the place of the largest error in each stretch of one sign."""
    best = [0]
    for i in range(1, len(grid)):
        if errors[i] * errors[best[-1]] < 0:
            best.append(i)
        elif abs(errors[i]) > abs(errors[best[-1]]):
            best[-1] = i
    return [grid[i] for i in best]


if __name__ == "__main__":
    main()
