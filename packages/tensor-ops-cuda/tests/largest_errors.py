"""The largest errors of results, which a test prints before one of them fails it."""

import numpy as np

# Errors of sums in results of about 1: those of float32, and those of bfloat16 on tensor cores.
# The latter err by less than a fiftieth of what they may at most, which is 2.1e-5 of the magnitudes
# on Hopper (decode/kernels/product.cuh derives it, test_decode_products.py shows both). Magnitudes
# of C random products add up to 0.64 sqrt(C): that is 9e-6 at 1,100 columns, the most of the models
# that are held to this bound, and 1.2e-5 at 2,048.
SUMS_BOUND = 1e-5


def check_errors(found, right, bound):
    """Print how far each array is from the right one; fail where that is not below a bound."""
    pairs = zip(found, right, strict=True)
    errors = [float(np.abs(own - expected).max(initial=0)) for own, expected in pairs]
    print(f"largest errors, bound {bound}:", *(f"{error:.2g}" for error in errors))
    assert all(error < bound for error in errors)  # NaN is not
