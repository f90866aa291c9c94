"""Every op between device arrays without a byte to spare, as AddressSanitizer wants to see them.

Host arrays go through staging memory that has room behind them.
"""

import numpy as np
import pytest
from emulated import InterfaceArray

import tensor_ops_cuda
from tensor_ops.op.samples import Draw, arguments
from tensor_ops.ops import OPS

# Less than a vector, one and a bit, and lanes with several.
LENGTHS = (2, 10, 130, 1026)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("op", tensor_ops_cuda.ops)
def test_between_arrays_of_exact_size(runtime, op, n, dtype):
    function = tensor_ops_cuda.ops[op]
    values = arguments(OPS[op], (3, n), Draw(dtype, f"{op}/{n}"))
    on_device = {name: InterfaceArray.of(runtime, value) for name, value in values.items()}
    expected = function(**values)
    expected = expected if isinstance(expected, tuple) else (expected,)
    outs = tuple(InterfaceArray.of(runtime, np.full_like(each, np.nan)) for each in expected)
    function(**on_device, out=outs if len(outs) > 1 else outs[0])
    for out, host in zip(outs, expected, strict=True):
        np.testing.assert_array_equal(out.numpy(), host)
