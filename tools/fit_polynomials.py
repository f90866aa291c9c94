"""Fit the polynomials of kernel_constants.toml.

Run with mpmath and NumPy: ``python tools/fit_polynomials.py``. It prints the coefficients, highest
degree first, with as many digits as the type has, and the largest relative error of the polynomial
with its rounded coefficients (evaluation error comes on top). The half series of mills was fitted
by weighted least squares instead: its last digits differ from those printed here.
"""

import mpmath as mp
import numpy as np

mp.mp.dps = 50


def remez(f, weight, lo, hi, degree, rounds=12):
    """Coefficients (ascending) with equal peaks of ``weight * (f - p)`` on [lo, hi]."""
    points = degree + 2
    nodes = [
        (lo + hi) / 2 - (hi - lo) / 2 * mp.cos(mp.pi * k / (points - 1)) for k in range(points)
    ]
    grid = [lo + (hi - lo) * (1 - mp.cos(mp.pi * k / 1500)) / 2 for k in range(1501)]
    values = [(x, f(x), weight(x)) for x in grid]
    for _ in range(rounds):
        a = mp.matrix(points, points)
        b = mp.matrix(points, 1)
        for i, x in enumerate(nodes):
            for j in range(degree + 1):
                a[i, j] = x**j
            a[i, degree + 1] = (-1) ** i / weight(x)
            b[i] = f(x)
        c = list(mp.lu_solve(a, b))[: degree + 1]
        error = [w * (y - mp.polyval(c[::-1], x)) for x, y, w in values]
        nodes = _alternating_peaks(grid, error, points)
    return c


def _alternating_peaks(grid, error, points):
    peaks = []
    for x, e in zip(grid, error, strict=True):
        if peaks and mp.sign(peaks[-1][1]) == mp.sign(e):
            if abs(e) > abs(peaks[-1][1]):
                peaks[-1] = (x, e)
        else:
            peaks.append((x, e))
    while len(peaks) > points:
        peaks.pop(0 if abs(peaks[0][1]) < abs(peaks[-1][1]) else -1)
    if len(peaks) < points:
        raise ArithmeticError(
            f"{len(peaks)} peaks, wanted {points}: the fit is at working precision"
        )
    return [x for x, _ in peaks]


def report(title, f, weight, lo, hi, degree, dtype):
    c = [dtype(float(v)) for v in remez(f, weight, lo, hi, degree)]
    grid = [lo + (hi - lo) * mp.mpf(k) / 4000 for k in range(4001)]
    worst = max(
        abs(weight(x) * (f(x) - mp.polyval([mp.mpf(float(v)) for v in c[::-1]], x))) for x in grid
    )
    print(f"# {title}, degree {degree}: relative error {mp.nstr(worst, 3)}")
    print(literals(c[::-1], dtype))


def exp_quotient(r):
    """q with exp(r) = 1 + r + r^2 q(r)."""
    if abs(r) < mp.mpf("1e-12"):
        return mp.mpf(1) / 2 + r / 6
    return (mp.expm1(r) - r) / r**2


def exp2_quotient(r):
    """q with 2^r = 1 + r q(r)."""
    return mp.log(2) if r == 0 else mp.expm1(r * mp.log(2)) / r


def report_exp2(entries, degree, dtype):
    """Print q for a table of so many powers 2^(j / entries)."""
    half = mp.mpf(1) / (2 * entries)
    title = f"2^r with {entries} table entries"
    report(title, exp2_quotient, lambda r: half, -half, half, degree, dtype)


def report_powers(entries, dtype):
    values = [dtype(float(mp.mpf(2) ** (mp.mpf(j) / entries))) for j in range(entries)]
    print(f"# 2^(j / {entries})")
    print(literals(values, dtype))


def tail_piece(start):
    """H(r) = Phi(-a) exp(a^2/2), where a = start - 1 + r."""

    def tail(r):
        a = start - 1 + r
        return mp.ncdf(-a) * mp.exp(a * a / 2)

    return tail


def report_tail_pieces(degree, dtype):
    """Print a table of 16 entries per coefficient, indexed by the low bits of exponent and first
    two fraction bits of a + 1, for 1 <= a + 1 < 16."""
    columns, worst = [None] * 16, 0
    for octave in range(4):
        for quarter in range(4):
            start, width = mp.mpf(2) ** octave * (1 + mp.mpf(quarter) / 4), mp.mpf(2) ** octave / 4
            f = tail_piece(start)
            c = remez(f, lambda r, f=f: 1 / f(r), mp.mpf(0), width, degree)
            c = [mp.mpf(float(dtype(float(v)))) for v in c]
            worst = max(
                worst,
                *(abs(mp.polyval(c[::-1], x) / f(x) - 1) for x in mp.linspace(0, width, 200)),
            )
            columns[((127 + octave) * 4 + quarter) % 16] = c
    print(f"# normal tail in 16 pieces, degree {degree}: relative error {mp.nstr(worst, 3)}")
    for power in range(degree, -1, -1):
        print("[" + literals([dtype(float(c[power])) for c in columns], dtype) + "],")


def literals(values, dtype):
    digits = 9 if dtype is np.float32 else 17
    return ", ".join(f"{float(v):.{digits}g}" for v in values)


def tail_ratio(shift):
    """P(u) = (a + shift) Phi(-a) exp(a^2/2), where u = 1 - 2 shift / (a + shift)."""

    def ratio(u):
        a = 2 * shift / (1 - u) - shift
        return (a + shift) * mp.ncdf(-a) * mp.exp(a * a / 2)

    return ratio


def main():
    half = mp.log(2) / 2
    for degree, dtype in ((4, np.float32), (9, np.float64)):
        # The error counts times r^2 <= half^2; the weight ignores that this vanishes at 0.
        report("exp", exp_quotient, lambda r: half**2, -half, half, degree, dtype)
    for entries, degree, dtype in (
        (16, 2, np.float32),
        (16, 1, np.float32),
        (8, 3, np.float32),
        (8, 1, np.float32),
        (1, 5, np.float32),
        (1, 3, np.float32),
        (8, 6, np.float64),
        (1, 10, np.float64),
    ):
        report_exp2(entries, degree, dtype)
    report_powers(16, np.float32)
    report_powers(8, np.float32)
    report_powers(8, np.float64)
    report_tail_pieces(6, np.float32)
    report_tail_pieces(3, np.float32)
    for degree, dtype, top, shift in (
        (12, np.float32, mp.mpf("20.5"), mp.mpf(3) / 2),
        (6, np.float32, mp.mpf("12.5"), mp.mpf(3) / 2),
        (22, np.float64, 54, mp.mpf(9) / 2),
    ):
        f = tail_ratio(shift)
        top_u = 1 - 2 * shift / (top + shift)
        report(
            f"normal tail, shift {shift}, a <= {top}",
            f,
            lambda u, f=f: 1 / f(u),
            mp.mpf(-1),
            top_u,
            degree,
            dtype,
        )


if __name__ == "__main__":
    main()
