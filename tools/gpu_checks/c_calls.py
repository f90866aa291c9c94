"""Checks of the C interface that need a GPU: memory and streams of another runtime, PyTorch's."""

import ctypes
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2] / "tests/conformance"))

import numpy as np
from checks import Checks, registered, run
from interop import assert_close, random_tensors, torch_with_gpu

import tensor_ops_cuda as ops
from c_interface import CUDA, DTYPES, OK, TYPE_ERROR, VALUE_ERROR, Array, Interface

CHECKS: Checks = {}
check = registered(CHECKS)


@check
def tensors_on_a_stream() -> None:
    """C interface: a call runs on the stream that it is given, and does not wait."""
    torch, x, _ = random_tensors()
    stream, y = torch.cuda.Stream(), torch.zeros_like(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        late = x + 1
        assert _call("silu", {"x": late}, y, stream) == (OK, "")
        done = stream.record_event()
    assert not done.query(), "the call has waited for the stream"
    assert torch.cuda.default_stream().query(), "the call has used the default stream"
    done.synchronize()
    assert torch.equal(y, ops.silu(late))


@check
def strided_tensors() -> None:
    """C interface: strides, and the default stream where none is given."""
    torch, x, weight = random_tensors()
    wide = torch.empty((*x.shape[:-1], 2 * x.shape[-1]), device="cuda")
    given = wide[:, 1::2]
    given.copy_(x)
    y = torch.zeros_like(wide)[:, ::2]
    assert _call("rms_norm", {"x": given, "weight": weight}, y) == (OK, "")
    torch.cuda.synchronize()
    assert torch.equal(y, ops.rms_norm(x, weight))


@check
def tensors_in_a_graph() -> None:
    """C interface: calls are captured in a graph and replayed on new values."""
    torch, x, _ = random_tensors()
    y = torch.empty_like(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert _call("softmax", {"x": x}, y, torch.cuda.current_stream()) == (OK, "")
    x.normal_()
    graph.replay()
    assert_close(torch, y, torch.softmax(x, -1))


@check
def memory_that_is_elsewhere() -> None:
    """C interface: host memory said to be the device's is an error, and the next call works."""
    torch, x, _ = random_tensors()
    y = torch.empty_like(x)
    for host in (x.cpu(), x.cpu().pin_memory()):
        status, message = _call("silu", {"x": host}, y)
        assert status == VALUE_ERROR, message
        assert "its data is in no device's memory" in message
        status, message = _call("silu", {"x": host.numpy()}, y)
        assert status == TYPE_ERROR, message
    assert _call("silu", {"x": x}, y) == (OK, "")
    torch.cuda.synchronize()
    assert torch.equal(y, ops.silu(x))


@check
def every_gpu() -> None:
    """C interface: every GPU, whichever is current, and what it is like."""
    torch = torch_with_gpu()
    interface = Interface("cuda")
    assert interface.table.device_count() == torch.cuda.device_count()
    for index in range(torch.cuda.device_count()):
        x = torch.randn((64, 4096), device=f"cuda:{index}")
        y = torch.empty_like(x)
        assert _call("silu", {"x": x}, y, torch.cuda.current_stream(index)) == (OK, "")
        assert torch.cuda.current_device() == 0
        torch.cuda.synchronize(index)
        assert torch.equal(y, ops.silu(x))


def _call(op: str, values: dict[str, Any], out: Any, stream: Any = None) -> tuple[int, str]:
    """Return status and message of a call on tensors and NumPy arrays."""
    interface = Interface("cuda")
    arrays = {
        name: value if isinstance(value, Array | np.ndarray) else _seen(value)
        for name, value in values.items()
    }
    call = interface.make_call(op, arrays, [_seen(out)])
    call.stream = stream and stream.cuda_stream
    status, message = interface.call(op, call)
    return status, message


def _seen(tensor: Any) -> Array:
    """Return a tensor as the interface has it, said to be on a GPU."""
    dims, item = tensor.dim(), tensor.element_size()
    shape = (ctypes.c_int64 * dims)(*tensor.shape)
    strides = (ctypes.c_int64 * dims)(*(step * item for step in tensor.stride()))
    dtype = DTYPES[str(tensor.dtype).removeprefix("torch.")]
    array = Array(tensor.data_ptr(), dtype, dims, shape, strides, CUDA, tensor.device.index or 0)
    array.kept = (shape, strides, tensor)
    return array


if __name__ == "__main__":
    sys.exit(run(CHECKS))
