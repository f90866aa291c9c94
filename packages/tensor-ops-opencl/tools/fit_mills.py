"""Fits the short polynomial of ops/op.clh for the tail of the normal distribution, for half types.

The others there are those of tensor-ops-cpp, by its tools/fit_polynomials.py. Wants SciPy.
"""

import numpy as np
from numpy.polynomial import polynomial
from scipy.special import erfcx

SHIFT = 1.5
LAST = 12.5  # beyond it the other formula is used
DEGREE = 6


def scaled_tail(u):
    """Return Phi(-a) exp(a^2 / 2) (a + SHIFT) for u = 2 a / (a + SHIFT) - 1."""
    v = (u + 1) / 2
    a = SHIFT * v / (1 - v)
    return 0.5 * erfcx(a / np.sqrt(2)) * (a + SHIFT)


def main():
    """Print coefficients, highest power first, and the largest relative error in float32."""
    end = 2 * LAST / (LAST + SHIFT) - 1
    nodes = np.cos(np.pi * (np.arange(400) + 0.5) / 400)
    u = -1 + (end + 1) * (nodes + 1) / 2
    wanted = scaled_tail(u)
    weights = 1 / wanted
    for _ in range(200):  # towards equal errors everywhere
        fitted = polynomial.polyfit(u, wanted, DEGREE, w=weights)
        error = np.abs(polynomial.polyval(u, fitted) / wanted - 1)
        weights *= np.sqrt(0.2 + error / error.max())
        weights /= weights.max()
    dense = np.linspace(-1, end, 20001)
    rounded = fitted.astype(np.float32)
    error = np.abs(polynomial.polyval(dense.astype(np.float32), rounded) / scaled_tail(dense) - 1)
    print(", ".join(f"{coefficient:.9g}f" for coefficient in rounded[::-1]))
    print(f"{error.max():.2g}")


if __name__ == "__main__":
    main()
