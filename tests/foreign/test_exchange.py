"""Tensors that a backend takes as they are, through DLPack's C exchange API."""

import numpy as np
import pytest

import tensor_ops
from tensor_ops import extension

torch = pytest.importorskip("torch")
cpp = pytest.importorskip("tensor_ops_cpp")
if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    pytest.skip("this PyTorch has no exchange API", allow_module_level=True)


@pytest.fixture(autouse=True)
def on_cpp(on_python):
    with tensor_ops.use_backend("cpp"):
        yield


@pytest.fixture
def x():
    return torch.linspace(-4, 4, 24).reshape(4, 6)


@pytest.fixture
def no_views(monkeypatch):
    """Lets no array be seen as one of NumPy's."""
    monkeypatch.setattr("tensor_ops.dispatch.foreign.numpy_view", None)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_tensors_go_in_and_come_out_as_they_are(x, dtype, no_views):
    x = x.to(getattr(torch, dtype))
    weight = torch.ones(6, dtype=x.dtype)
    assert torch.equal(tensor_ops.silu(x), cpp.silu(x))
    assert torch.equal(tensor_ops.rms_norm(x, weight, 0.5), cpp.rms_norm(x, weight, 0.5))
    assert torch.equal(tensor_ops.rms_norm(x, weight=weight), cpp.rms_norm(x, weight))
    out = torch.empty_like(x)
    assert tensor_ops.silu(x, out=out) is out
    assert torch.equal(out, cpp.silu(x))


def test_another_backend_decides_for_itself(x):
    with tensor_ops.use_backend("python"):
        expected = tensor_ops.silu(x)
    found = tensor_ops.silu(x, backend="python")
    assert torch.equal(found, expected)
    torch.testing.assert_close(tensor_ops.silu(x), expected)


def test_arrays_beside_tensors(x):
    weight = np.ones(6, np.float32)
    assert torch.equal(tensor_ops.rms_norm(x, weight), cpp.rms_norm(x, torch.ones(6)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: tensor_ops.silu(x.requires_grad_()), "silu: x requires grad, and tensor_ops "),
        (lambda x: tensor_ops.rms_norm(x, x), r"weight .*\(4, 6\)"),
        (lambda x: tensor_ops.rms_norm(x, x[0].double()), "weight .*float64"),
        (lambda x: tensor_ops.silu(torch.arange(3)), r"silu: x .*dtype (torch\.)?int64"),
        (lambda x: tensor_ops.silu(torch._neg_view(x)), "x is a view that negates lazily"),
        (lambda x: tensor_ops.silu(x.to_sparse()), "silu: x "),
        (lambda x: tensor_ops.silu(x, num_threads=1), "num_threads"),
    ],
)
def test_errors_are_those_of_the_longer_way(x, call, message, monkeypatch):
    with pytest.raises((TypeError, ValueError), match=message) as of_this_way:
        call(x.detach())
    monkeypatch.setattr("tensor_ops.dispatch.foreign.function_of_exchange", lambda *_: None)
    with pytest.raises(of_this_way.type) as of_the_longer:
        call(x.detach())
    assert str(of_this_way.value) == str(of_the_longer.value)


def test_parameters_go_in_as_they_are_where_no_gradients_are_recorded(x, no_views):
    parameter = torch.nn.Parameter(x)
    with torch.no_grad():
        assert torch.equal(tensor_ops.silu(parameter), cpp.silu(x))


def test_the_function_is_found_anew_for_every_call(x):
    find = extension.exchanging_finder(extension.OPS["silu"], lambda *_: "float32")
    assert find(x.dtype, x) is cpp.silu
    with (
        tensor_ops.use_backend("python"),
        pytest.raises(TypeError, match="the backend takes NumPy arrays only"),
    ):
        find(x.dtype, x)
    assert find(x.dtype, x) is cpp.silu


def test_a_dtype_that_has_no_name_is_refused(x):
    def name_of(op, argument, array):
        raise TypeError(f"{op} takes no {argument} of {array.dtype}")

    find = extension.exchanging_finder(extension.OPS["silu"], name_of)
    with pytest.raises(TypeError, match=r"silu takes no x of torch\.int64"):
        find(torch.int64, x.long())
