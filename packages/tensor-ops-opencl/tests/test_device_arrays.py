"""pyopencl arrays in, pyopencl arrays out, on their queue."""

import numpy as np
import pytest
from reference import OPS, as_tuple, calls

import tensor_ops_opencl


@pytest.fixture
def context(device):
    """Held by the test: Intel's runtime forgets a context that only its queues hold."""
    import pyopencl as cl

    return cl.Context([device.handle])


@pytest.fixture
def queue(context):
    import pyopencl as cl

    return cl.CommandQueue(context)


@pytest.fixture
def to_device(queue):
    import pyopencl.array as cl_array

    return lambda array: cl_array.to_device(queue, np.ascontiguousarray(array))


def on_device(values, to_device):
    return {
        key: to_device(value) if isinstance(value, np.ndarray) else value
        for key, value in values.items()
    }


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", OPS)
def test_the_same_bits_as_host_arrays(name, dtype, queue, to_device):
    import pyopencl.array as cl_array

    for shape in ((3, 4, 66), (2, 40000)):
        for values in calls(name, shape, dtype):
            wanted = as_tuple(tensor_ops_opencl.ops[name](**values))
            results = as_tuple(tensor_ops_opencl.ops[name](**on_device(values, to_device)))
            for got, each in zip(results, wanted, strict=True):
                assert isinstance(got, cl_array.Array)
                assert got.queue == queue
                assert got.dtype == each.dtype
                assert got.get().tobytes() == each.tobytes()


def test_nothing_waits(queue, to_device):
    """The call returns while what it waits for has not even begun."""
    import pyopencl as cl

    x = to_device(np.ones(1000, np.float32))
    gate = cl.UserEvent(queue.context)
    x.add_event(gate)
    y = tensor_ops_opencl.silu(x)
    (event,) = y.events
    status = event.command_execution_status
    gate.set_status(cl.command_execution_status.COMPLETE)
    assert status != cl.command_execution_status.COMPLETE
    np.testing.assert_allclose(y.get(), 0.731, atol=1e-3)


def test_out_and_in_place(to_device):
    host = np.linspace(-3, 3, 300, dtype=np.float32)
    wanted = tensor_ops_opencl.silu(host)
    x, out = to_device(host), to_device(np.zeros_like(host))
    assert tensor_ops_opencl.silu(x, out=out) is out
    np.testing.assert_array_equal(out.get(), wanted)
    assert tensor_ops_opencl.silu(x, out=x) is x
    np.testing.assert_array_equal(x.get(), wanted)


def test_arrays_that_begin_within_a_buffer(to_device):
    host = np.linspace(-3, 3, 1024, dtype=np.float32)
    x = to_device(host)[512:]
    np.testing.assert_array_equal(
        tensor_ops_opencl.silu(x).get(), tensor_ops_opencl.silu(host[512:])
    )


def test_empty(to_device):
    x = to_device(np.zeros((3, 1), np.float32))[:0]
    assert tensor_ops_opencl.silu(x).shape == (0, 1)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda t, x, w: t.rms_norm(x, w.get()), TypeError, ("weight", "numpy.ndarray")),
        (lambda t, x, w: t.rms_norm(x.get(), w), TypeError, ("weight", "pyopencl.array.Array")),
        (lambda t, x, w: t.silu(x, out=x.get()), TypeError, ("out", "numpy.ndarray")),
        (lambda t, x, w: t.silu(x[:, ::2]), ValueError, ("x", "not C-contiguous", "copy")),
        (lambda t, x, w: t.silu(x[:2], out=x[1:3]), ValueError, ("out", "overlaps x")),
        (lambda t, x, w: t.silu(x.with_queue(None)), ValueError, ("x", "with_queue")),
        (lambda t, x, w: t.rms_norm(x, x), ValueError, ("weight", "(4, 64)", "(64,)")),
        (lambda t, x, w: t.silu(x.view(np.int32)), TypeError, ("x", "int32", "bfloat16")),
    ],
)
def test_refusals(call, error, says, to_device):
    x, weight = to_device(np.ones((4, 64), np.float32)), to_device(np.ones(64, np.float32))
    with pytest.raises(error) as caught:
        call(tensor_ops_opencl, x, weight)
    for text in says:
        assert text in str(caught.value)


def test_another_context_is_refused(device, to_device):
    import pyopencl as cl
    import pyopencl.array as cl_array

    x = to_device(np.ones((4, 64), np.float32))
    context = cl.Context([device.handle])
    other = cl.CommandQueue(context)
    weight = cl_array.to_device(other, np.ones(64, np.float32))
    with pytest.raises(ValueError, match="weight belongs to another OpenCL context"):
        tensor_ops_opencl.rms_norm(x, weight)


def test_angles_that_repeat_between_axes_are_refused(to_device):
    x = to_device(np.ones((2, 3, 2, 8), np.float32))
    angles = to_device(np.ones((2, 1, 2, 4), np.float32))
    with pytest.raises(ValueError, match=r"cos .* expand it to \(2, 3, 2, 4\)"):
        tensor_ops_opencl.rope(x, angles, angles)
