"""Failures of the device and of its compiler."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import tensor_ops_opencl
from tensor_ops_opencl import BuildError, DeviceError, programs


def test_a_build_failure_shows_device_options_and_log(device, use_device, monkeypatch):
    use_device()
    monkeypatch.setattr(programs, "source", lambda op: "kernel void elements() { no_such(); }")
    with pytest.raises(BuildError) as caught:
        tensor_ops_opencl.silu(np.zeros(8, np.float32))
    for text in (device.name, device.driver, "silu.cl", "-DELEMENT_float32", "no_such"):
        assert text in str(caught.value)


def test_lines_of_a_log_are_those_of_the_files(device):
    text = programs.source("silu")
    assert '#line 1 "op.clh"' in text
    own = Path(inspect.getfile(tensor_ops_opencl)).with_name("ops") / "silu.cl"
    lines = own.read_text(encoding="utf-8").splitlines()
    stretches = re.findall(r'^#line (\d+) "silu.cl"\n(.*?)(?=^#line|\Z)', text, re.M | re.S)
    assert stretches
    for number, stretch in stretches:
        first = int(number) - 1
        found = stretch.splitlines()
        assert lines[first : first + len(found)] == found


def test_out_of_memory_is_a_memory_error_and_passes(device, use_device, monkeypatch):
    import pyopencl as cl

    here = use_device()
    x = np.ones(4096, np.float32)
    wanted = tensor_ops_opencl.silu(x)
    with pytest.raises(cl.Error) as refused:  # what a device without room says
        cl.Buffer(here.handle, cl.mem_flags.READ_WRITE, 2**62)

    def no_room(*args, **kwargs):
        raise refused.value

    with monkeypatch.context() as patch:
        patch.setattr(cl, "Buffer", no_room)
        with pytest.raises(MemoryError, match="silu: the device has no memory left"):
            tensor_ops_opencl.silu(x)
    np.testing.assert_array_equal(tensor_ops_opencl.silu(x), wanted)


def test_an_interrupted_call_waits_for_its_kernels(device, monkeypatch):
    if not device.shares_memory:
        pytest.skip("the device does not work in the caller's memory")
    x = np.ones((8000, 4096), np.float32)
    tensor_ops_opencl.softmax(x[:1])  # builds the program
    out = np.zeros_like(x)

    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("tensor_ops_opencl.host_arrays.make_visible", interrupt)
    with pytest.raises(KeyboardInterrupt):
        tensor_ops_opencl.softmax(x, out=out)
    assert out[-1, -1] > 0  # which is computed last


def test_a_device_without_float64_says_so(device, use_device, monkeypatch):
    changed = use_device(has_float64=False).device
    monkeypatch.setattr("tensor_ops_opencl.discovery.devices", lambda: [changed])
    reason = tensor_ops_opencl.supports("silu", "float64", "cpu")
    assert "has no float64" in reason
    assert "float64" not in tensor_ops_opencl.info()["dtypes"]
    assert tensor_ops_opencl.supports("silu", "bfloat16", "cpu") is None
    with pytest.raises(DeviceError, match="has no float64; use float32"):
        tensor_ops_opencl.silu(np.zeros(3))
    tensor_ops_opencl.silu(np.zeros(3, np.float32))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda t: t.silu(), "missing a required argument: 'x'"),
        (lambda t: t.silu(np.zeros(3), np.zeros(3)), "too many positional arguments"),
        (lambda t: t.silu(np.zeros(3), y=1), "unexpected keyword argument 'y'"),
        (lambda t: t.silu(np.zeros(3), x=np.zeros(3)), "multiple values for argument 'x'"),
        (lambda t: t.silu(np.zeros(3), num_threads=2), "num_threads"),
    ],
)
def test_a_call_that_does_not_fit(call, says):
    with pytest.raises(TypeError, match="silu: ") as caught:
        call(tensor_ops_opencl)
    assert says in str(caught.value)
