"""The attention of a warp, whose heads may be fewer than it has room for."""

import numpy as np
import pytest
from emulated_kernels import unsanitized

pytestmark = unsanitized

ROOM = 4  # heads
POSITIONS = 8


@pytest.mark.parametrize("size", [16, 128, 256])
@pytest.mark.parametrize("heads", [1, 2, 3, 4])
def test_queries_of_absent_heads_are_not_read(heads, size, kernels, rng):
    """Behind the queries of the present heads is memory that other warps write."""
    keys = (rng.standard_normal((POSITIONS, size)) * size**-0.5).astype(np.float32)
    q = rng.standard_normal((ROOM, size)).astype(np.float32)
    q[heads:] = np.nan
    given = [kernels.array(each) for each in (keys, keys, q)]
    sums = kernels.array(np.zeros(ROOM, np.float32))
    kernels.run("add_positions", *given, size, heads, sums)
    found = kernels.values(sums, ROOM, np.float32)
    scores = q[:heads].astype(np.float64) @ keys.T
    right = np.exp(scores - scores.max(axis=1, keepdims=True)).sum(axis=1)
    np.testing.assert_allclose(found[:heads], right, rtol=1e-5)
    assert np.isfinite(found).all()
