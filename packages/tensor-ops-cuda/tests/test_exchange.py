"""Arrays whose type has DLPack's C exchange API, as torch's has."""

import sys
import types

import numpy as np
import pytest
from emulated import Array, Capture, ExchangeLibrary

import tensor_ops_cuda
from tensor_ops_cuda import rms_norm, silu, silu_mul


@pytest.fixture
def library(runtime):
    return ExchangeLibrary(runtime, runtime.stream())


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float64"])
def test_result_is_the_callers_own_type(library, runtime, rng, name):
    import ml_dtypes

    dtype = ml_dtypes.bfloat16 if name == "bfloat16" else name
    host = rng.normal(size=(3, 40)).astype(dtype)
    y = silu(library.Tensor.of(runtime, host))
    assert type(y) is library.Tensor
    assert (y.shape, y.strides, y.dtype) == ((3, 40), (40, 1), name)
    np.testing.assert_array_equal(y.numpy(), silu(host))
    assert not library.leases.lent


def test_two_outputs(library, runtime, rng):
    x, residual = (rng.normal(size=(5, 64)).astype(np.float32) for _ in range(2))
    weight = rng.normal(size=64).astype(np.float32)
    arrays = (library.Tensor.of(runtime, each) for each in (x, residual, weight))
    results = tensor_ops_cuda.add_rms_norm(*arrays)
    for got, expected in zip(
        results, tensor_ops_cuda.add_rms_norm(x, residual, weight), strict=True
    ):
        np.testing.assert_array_equal(got.numpy(), expected)


def test_call_does_not_wait_and_follows_the_current_stream(library, runtime):
    """The op reads what the stream is still to write."""
    x = library.Tensor.of(runtime, np.full((4, 8), np.nan, np.float32))
    values = np.linspace(-4, 4, 32, dtype=np.float32).reshape(4, 8)
    runtime.upload_later(x.address, runtime.pinned(values), values.nbytes, library.current)
    y = silu(x)
    assert not runtime.is_idle(library.current)
    np.testing.assert_array_equal(y.numpy(), silu(values))


def test_views_without_a_copy(library, runtime, rng):
    base = rng.normal(size=(9, 70)).astype(np.float32)
    for view in (
        base[::2, 3:67],
        base[::-1],
        base[:, ::3],
        base.T,
        base[4],
        base[:0],
        base[:, ::-1],
    ):
        np.testing.assert_array_equal(silu(library.Tensor.of(runtime, view)).numpy(), silu(view))


def test_out(library, runtime, rng):
    x = rng.normal(size=(4, 10)).astype(np.float32)
    memory = np.full((4, 30), 7, np.float32)
    out = library.Tensor.of(runtime, memory[:, 1:21:2])
    assert silu(library.Tensor.of(runtime, x), out=out) is out
    np.testing.assert_array_equal(out.numpy(), silu(x))
    memory[:, 1:21:2] = silu(x)
    start = out.address - 4
    np.testing.assert_array_equal(runtime.read(start, 120, np.float32), memory.reshape(-1))


def test_in_place(library, runtime, rng):
    gate, up = (rng.normal(size=(4, 10)).astype(np.float32) for _ in range(2))
    x, other = (library.Tensor.of(runtime, each) for each in (gate, up))
    silu_mul(x, other, out=x)
    np.testing.assert_array_equal(x.numpy(), silu_mul(gate, up))


def test_overlap_is_refused(library, runtime):
    memory = np.zeros(100, np.float32)
    x = library.Tensor.of(runtime, memory)
    part = library.Tensor(runtime, x.address, (40,), (2,), "float32")
    beside = library.Tensor(runtime, x.address + 4, (40,), (2,), "float32")
    shifted = library.Tensor(runtime, x.address + 8, (40,), (2,), "float32")
    silu(part, out=beside)
    with pytest.raises(
        ValueError, match="silu: out overlaps x without being exactly the same view"
    ):
        silu(part, out=shifted)
    repeated = library.Tensor(runtime, x.address, (40,), (0,), "float32")
    with pytest.raises(ValueError, match="out overlaps itself"):
        silu(part, out=repeated)


def test_gradients_are_refused(library, runtime):
    x = library.Tensor.of(runtime, np.zeros(4, np.float32))
    x.requires_grad = True
    with pytest.raises(ValueError, match=r"silu: x requires grad.*pass x\.detach\(\)"):
        silu(x)


def test_gradients_that_nobody_records(library, runtime, rng, monkeypatch):
    """As in torch.no_grad() and torch.inference_mode(), of the tensor's own library only."""
    recording = [True]
    module = types.ModuleType("madeup")
    module.is_grad_enabled = lambda: recording[0]
    monkeypatch.setitem(sys.modules, "madeup", module)
    library.Tensor.__module__ = "madeup.tensors"
    host = rng.normal(size=(3, 8)).astype(np.float32)
    x, weight = library.Tensor.of(runtime, host), library.Tensor.of(runtime, host[0])
    weight.requires_grad = True
    with pytest.raises(ValueError, match=r"weight requires grad.*in madeup\.no_grad\(\)"):
        rms_norm(x, weight)
    recording[0] = False
    np.testing.assert_array_equal(rms_norm(x, weight).numpy(), rms_norm(host, host[0]))
    assert silu(weight, out=weight) is weight
    np.testing.assert_array_equal(weight.numpy(), silu(host[0]))


def test_parameters_of_torch():
    """Parameters for which no gradient is recorded are refused only for being in host memory."""
    torch = pytest.importorskip("torch")
    weight = torch.nn.Parameter(torch.ones(3))
    with pytest.raises(ValueError, match="silu: x requires grad"):
        silu(weight)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode(), pytest.raises(TypeError, match="silu: x is a Parameter in host memory"):
            silu(weight)


def test_unsupported_dtype(library, runtime):
    x = library.Tensor(runtime, runtime.memory(np.zeros(4, np.int32)), (4,), (1,), "int32")
    with pytest.raises(
        TypeError, match="silu: x has dtype int32; the supported dtypes are float32"
    ):
        silu(x)


@pytest.mark.parametrize(("kind", "error"), [("MemoryError", MemoryError), ("Other", RuntimeError)])
def test_allocator_fails(library, runtime, kind, error):
    x = library.Tensor.of(runtime, np.zeros(4, np.float32))
    library.fails = kind
    with pytest.raises(error, match="the made-up library says so"):
        silu(x)
    library.fails = None
    assert silu(x).numpy().tolist() == [0, 0, 0, 0]


def test_another_librarys_weight(library, runtime, rng):
    """Two libraries, two streams: each waits for the other's."""
    other = ExchangeLibrary(runtime, runtime.stream())
    x, weight = rng.normal(size=(3, 32)).astype("f4"), rng.normal(size=32).astype("f4")
    scale = other.Tensor.of(runtime, np.full(32, np.nan, np.float32))
    runtime.upload_later(scale.address, runtime.pinned(weight), weight.nbytes, other.current)
    y = rms_norm(library.Tensor.of(runtime, x), scale)
    # The weight may be overwritten on its own stream right away.
    runtime.upload_later(scale.address, runtime.pinned(weight * 0), weight.nbytes, other.current)
    runtime.synchronize(other.current)
    np.testing.assert_array_equal(y.numpy(), rms_norm(x, weight))


def test_torch_in_host_memory():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"silu: x is a Tensor in host memory.*tensor_ops\.silu"):
        silu(torch.ones(3))


def test_numpy_beside_a_device_array(library, runtime):
    x = library.Tensor.of(runtime, np.zeros((2, 4), np.float32))
    weight = np.ones(4, np.float32)
    says = r"rms_norm: weight is a numpy\.ndarray in host memory and x is a Tensor on cuda:0; all"
    with pytest.raises(TypeError, match=says):
        rms_norm(x, weight)
    says = r"rms_norm: weight is a Tensor on cuda:0 and x is a numpy\.ndarray in host memory; all"
    with pytest.raises(TypeError, match=says):
        rms_norm(np.zeros((2, 4), np.float32), library.Tensor.of(runtime, weight))
    says = r"silu: out is a Tensor on cuda:0 and x is a numpy\.ndarray in host memory; all"
    with pytest.raises(TypeError, match=says):
        silu(np.zeros((2, 4), np.float32), out=x)


def test_numpy_beside_a_tensor_in_host_memory():
    torch = pytest.importorskip("torch")
    x, weight = np.ones((2, 4), np.float32), np.ones(4, np.float32)
    says = r"rms_norm: weight is a Tensor in host memory and x is a numpy\.ndarray in host memory"
    with pytest.raises(TypeError, match=says):
        rms_norm(x, torch.ones(4))
    with pytest.raises(TypeError, match="rms_norm: x is a Tensor in host memory; move it"):
        rms_norm(torch.ones(2, 4), weight)


@pytest.mark.parametrize("layout", ["contiguous", "gathered"])
def test_graph_capture(library, runtime, rng, layout):
    """Nothing on the way synchronises; the graph computes what memory holds when it is launched."""
    host = rng.normal(size=(6, 40)).astype(np.float32)
    x = library.Tensor.of(runtime, host if layout == "contiguous" else host[:, ::2])
    silu(x)
    with Capture(runtime, library.current) as capture:
        y = silu(x)
    later = rng.normal(size=(6, 40)).astype(np.float32)
    runtime.upload_later(x.address, runtime.pinned(later), later.nbytes, library.current)
    capture.launch()
    np.testing.assert_array_equal(
        y.numpy(), silu(later if layout == "contiguous" else later[:, ::2])
    )


def test_arrays_of_no_elements(library, runtime):
    for shape in ((0,), (3, 0), (0, 4)):
        y = silu(library.Tensor.of(runtime, np.zeros(shape, np.float32)))
        assert y.shape == shape


def test_array_helper_reads_what_it_wrote(runtime, rng):
    view = rng.normal(size=(5, 6)).astype(np.float32)[::-1, ::2]
    np.testing.assert_array_equal(Array.of(runtime, view).numpy(), view)
