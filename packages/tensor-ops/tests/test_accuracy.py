"""Errors against bounds, where the largest element of a row says less than the terms."""

import numpy as np
import pytest

from tensor_ops.op.accuracy import Bound, measure
from tensor_ops.ops import OPS

# Bias and weighted element cancel to a millionth; the other column is too small to tell of it. As
# the fuzzer found it, in bfloat16, with weights that are no powers of two.
X = np.array([-2.875, 3.203125], np.float32)
WEIGHT = np.array([7.65625, 0.23828125], np.float32)
EPS = 1e-6


def terms(row):
    normal = OPS["layer_norm"].numpy(row, np.ones(2), None, EPS)
    return abs(normal).max() * WEIGHT + WEIGHT


@pytest.fixture
def cancelled():
    """The result in float32, and the reference."""
    row, weight = X.astype(np.float64), WEIGHT.astype(np.float64)
    return OPS["layer_norm"].numpy(X, WEIGHT, WEIGHT, EPS), OPS["layer_norm"].numpy(
        row, weight, weight, EPS
    )


def test_terms_hold_where_all_of_a_row_cancels(cancelled):
    bound = OPS["layer_norm"].bounds["float32"]
    result, reference = cancelled
    assert not measure(result, reference, bound).within
    assert measure(result, reference, bound, terms(X.astype(np.float64))).within


@pytest.mark.parametrize("column", [0, 1])
def test_terms_are_of_each_element(cancelled, column):
    """An error that beside the other column's terms would be none is one beside its own."""
    bound = OPS["layer_norm"].bounds["float32"]
    of_each = terms(X.astype(np.float64))
    result = cancelled[1].copy()
    result[column] += 1.5e-6 * of_each[column]
    assert not measure(result, cancelled[1], bound, of_each).within
    result[column] -= 1e-6 * of_each[column]
    assert measure(result, cancelled[1], bound, of_each).within


def test_a_bound_relative_to_terms_needs_them():
    one = np.ones(3)
    assert measure(one, one, Bound(1e-6, "terms"), one).within
    with pytest.raises(ValueError, match="give their magnitudes"):
        measure(one, one, Bound(1e-6, "terms"))
