"""Messages about a bad ``out=`` advise no copy: the result would go there and be lost."""

import numpy as np
import pytest
from emulated import ExchangeLibrary, InterfaceArray

from tensor_ops_cuda import silu

pytestmark = pytest.mark.usefixtures("device")

X = np.zeros((2, 6), np.float32)


def read_only():
    out = np.empty_like(X)
    out.flags.writeable = False
    return out


BAD = {
    "dtype": (np.empty((2, 6)), TypeError, "give an array of dtype float32"),
    "byte order": (np.empty((2, 6), ">f4"), TypeError, "give an array of native byte order"),
    "unsupported": (np.empty((2, 6), "i4"), TypeError, "give an array of dtype float32"),
    "read-only": (read_only(), ValueError, "give a writable array"),
    "masked": (np.ma.zeros((2, 6), np.float32), TypeError, "give an array without a mask"),
    "list": ([[1.0]], TypeError, "must be a numpy.ndarray or an array on a CUDA device, got list"),
}


@pytest.mark.parametrize("case", BAD)
def test_host_arrays(case):
    out, error, says = BAD[case]
    with pytest.raises(error) as caught:
        silu(X, out=out)
    message = str(caught.value)
    assert says in message
    for lost in ("astype", "asarray", "copy", "filled"):
        assert lost not in message


def test_elements_that_are_not_aligned(runtime):
    x = InterfaceArray.of(runtime, X)
    out = InterfaceArray(runtime, x.address + 2, (2, 5), (6, 1), "float32")
    with pytest.raises(
        ValueError, match=r"out's elements do not lie at .*; give an array whose do"
    ):
        silu(InterfaceArray.of(runtime, X[:, :5]), out=out)
    with pytest.raises(ValueError, match=r"x's elements do not lie at .*; pass a copy"):
        silu(out)


def test_views_that_negate_lazily(runtime):
    library = ExchangeLibrary(runtime, runtime.stream())
    library.Tensor.is_neg = lambda self: self.read_only
    x, out = (library.Tensor.of(runtime, X) for _ in range(2))
    out.read_only = True
    with pytest.raises(ValueError, match="out is a view that negates lazily; give another"):
        silu(x, out=out)
    with pytest.raises(ValueError, match=r"x is a view that negates lazily; pass x\.resolve_neg"):
        silu(out)
