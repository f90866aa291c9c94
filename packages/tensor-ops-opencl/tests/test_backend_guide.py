"""The OpenCL snippets of the backend guide, word for word but for the names."""

GUIDE = """
import tensor_ops_opencl
import numpy as np

x = np.random.randn(128, 4096).astype(np.float32)
weight = np.random.randn(4096).astype(np.float32)

# Get OpenCL device info
print(tensor_ops_opencl.get_opencl_info())

# Use OpenCL operations
y = tensor_ops_opencl.rms_norm(x, weight)
"""


def test_use_the_backend(device):
    import numpy as np

    names = {}
    exec(GUIDE, names)
    x, weight = names["x"].astype(float), names["weight"].astype(float)
    wanted = x * weight / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
    assert names["y"].dtype == np.float32
    np.testing.assert_allclose(names["y"], wanted, rtol=2e-6)


def test_the_interface_that_all_backends_share(device):
    import numpy as np

    import tensor_ops_opencl as t

    x = np.ones((2, 4), np.float32)
    for result in (t.rms_norm(x, x[0], eps=1e-6), t.silu(x), t.gelu(x)):
        assert result.shape == x.shape


def test_select_it(device):
    import numpy as np

    import tensor_ops

    x = np.ones((2, 4), np.float32)
    assert tensor_ops.get_backend_info("opencl")["device_name"] == str(device)
    assert tensor_ops.silu(x, backend="opencl").dtype == np.float32
    # Before C++ by the default priority, unless its device is a CPU.
    expected = "cpp" if device.kind == "cpu" else "opencl"
    assert tensor_ops.get_backend() in ("cuda", expected)
