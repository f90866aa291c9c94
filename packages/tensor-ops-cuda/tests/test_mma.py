"""The emulated tensor cores compute what NumPy does."""

import ml_dtypes
import numpy as np
import pytest
from emulated import CudaError
from emulated_kernels import unsanitized

pytestmark = unsanitized

FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def multiply(kernels, name, a, b, sums):
    """Return sums + a b, of the warp."""
    on_device = [kernels.array(each) for each in (a, np.ascontiguousarray(b.T), sums)]
    kernels.run(f"mma_{name}", *on_device)
    return kernels.values(on_device[2], sums.size, sums.dtype).reshape(sums.shape)


def test_int8_is_exact(kernels, rng):
    for _ in range(10):
        a = rng.integers(-128, 128, (16, 32), np.int8)
        b = rng.integers(-128, 128, (32, 8), np.int8)
        sums = rng.integers(-(2**31), 2**31, (16, 8), np.int32)  # whose sums wrap around
        right = sums + a.astype(np.int32) @ b.astype(np.int32)
        assert (multiply(kernels, "s8", a, b, sums) == right).all()


@pytest.mark.parametrize("name", FLOATS)
def test_floats_are_rounded_once(name, kernels, rng):
    for _ in range(10):
        a, b = (rng.standard_normal(shape).astype(FLOATS[name]) for shape in ((16, 16), (16, 8)))
        sums = rng.standard_normal((16, 8)).astype(np.float32)
        right = sums + a.astype(np.float64) @ b.astype(np.float64)
        found = multiply(kernels, name, a, b, sums)
        np.testing.assert_allclose(found, right, rtol=2**-24, atol=1e-14)


@pytest.mark.parametrize("name", FLOATS)
def test_nan_stays_in_its_row(name, kernels):
    a, b = np.ones((16, 16), FLOATS[name]), np.ones((16, 8), FLOATS[name])
    a[3, 5] = np.nan
    found = multiply(kernels, name, a, b, np.zeros((16, 8), np.float32))
    assert np.isnan(found[3]).all()
    assert (np.delete(found, 3, axis=0) == 16).all()


def test_a_part_of_a_warp_is_an_error(kernels):
    with pytest.raises(CudaError, match="mma by a part of a warp"):
        kernels.run("mma_of_half_a_warp", *(kernels.array(np.zeros(128, np.uint32)),) * 3)
