"""Results that go past the caches are the same bits as those that do not."""

import numpy as np
import pytest
from reference import NAMES_AND_DTYPES, as_tuple, calls

import tensor_ops_opencl


@pytest.mark.parametrize(("name", "dtype"), NAMES_AND_DTYPES)
@pytest.mark.sampled(4, "name")
def test_the_same_bits(name, dtype, device, use_device):
    if device.kind != "cpu":
        pytest.skip("only CPUs have results streamed")
    shapes = [(5, 128), (3, 70), (2, 40000), (4, 16)]
    every = [values for shape in shapes for values in calls(name, shape, dtype)]
    wanted = [as_tuple(tensor_ops_opencl.ops[name](**values)) for values in every]
    use_device(cache_size=0)  # beside which every result is large
    for values, results in zip(every, wanted, strict=True):
        for got, each in zip(as_tuple(tensor_ops_opencl.ops[name](**values)), results, strict=True):
            assert got.tobytes() == each.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("offset", range(0, 40, 4))
def test_out_anywhere(offset, dtype, use_device):
    (values, *_) = calls("rms_norm", (4, 96), dtype)
    wanted = tensor_ops_opencl.rms_norm(**values)
    use_device(cache_size=0)
    memory = np.full(wanted.nbytes + 128, 0xA5, np.uint8)
    skipped = -memory.__array_interface__["data"][0] % 64 + offset
    out = memory[skipped : skipped + wanted.nbytes].view(wanted.dtype).reshape(wanted.shape)
    tensor_ops_opencl.rms_norm(**values, out=out)
    assert out.tobytes() == wanted.tobytes()
    rest = np.concatenate([memory[:skipped], memory[skipped + wanted.nbytes :]])
    assert (rest == 0xA5).all()
