"""Linear layers that multiply float8, on the CPU, whose PyTorch has the same operator."""

import copy

import pytest
import torch
from torch import nn

from tensor_ops_devices.backends.float8 import Float8Linear, from_float8, to_float8

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
# The steps of float8: 3 and 2 bits of mantissa, so that a factor is off by 1/16 or 1/8 at most.
E4M3, E5M2 = 2**-4, 2**-3


def normal(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def make(inputs, outputs, dtype=torch.float32, bias=True):
    linear = nn.Linear(inputs, outputs, bias=bias, dtype=dtype)
    with torch.no_grad():
        linear.weight.copy_(normal(outputs, inputs, dtype=dtype, seed=1))
    return linear


def bound(left, right, error):
    """Return the largest error of ``left @ right`` whose factors have relative errors."""
    return (left.double().abs() @ right.double().abs()) * error


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(32,), (5, 32), (2, 3, 32), (16, 32), (0, 32)])
def test_results_and_gradients_are_within_the_error_of_float8(dtype, shape):
    plain = make(32, 48, dtype)
    rounded = copy.deepcopy(plain)
    assert to_float8(rounded) == {"": None}
    x = normal(*shape, dtype=dtype)
    grad = normal(*shape[:-1], 48, dtype=dtype, seed=2)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    results = [layer(each) for layer, each in zip((plain, rounded), inputs, strict=True)]
    for result in results:
        result.backward(grad)
    rows, grads = x.reshape(-1, 32), grad.reshape(-1, 48)
    one, two = 2 * E4M3 + E4M3**2, E4M3 + E5M2 + E4M3 * E5M2
    half = 4 * torch.finfo(dtype).eps
    # Below the range of float8's normal numbers an error is absolute: a part of the largest.
    checks = [
        (results[0], results[1], bound(rows, plain.weight.t(), one)),
        (inputs[0].grad, inputs[1].grad, bound(grads, plain.weight, two)),
        (plain.weight.grad, rounded.weight.grad, bound(grads.t(), rows, two)),
    ]
    for exact, found, allowed in checks:
        assert (found.shape, found.dtype) == (exact.shape, exact.dtype)
        error = (found.double() - exact.double()).abs().reshape(allowed.shape)
        slack = half * (1 + exact.double().abs().reshape(allowed.shape))
        assert bool((error <= allowed + slack).all())
        # Errors of single factors cancel; a wrong scale would not.
        assert error.norm() <= 0.12 * exact.double().norm()
    # Sums of the same gradients of at most 16 rows, in an order that PyTorch chooses.
    order = 16 * torch.finfo(dtype).eps * grads.double().abs().sum(0).max().item()
    torch.testing.assert_close(rounded.bias.grad, plain.bias.grad, rtol=0, atol=order)


def test_it_does_round_to_float8():
    linear = make(32, 16, bias=False)
    x = normal(4, 32)
    exact = linear(x)
    to_float8(linear)
    error = ((linear(x) - exact).norm() / exact.norm()).item()
    assert 0.005 < error < 0.1


def test_what_float8_holds_exactly_is_exact_but_for_the_scales():
    """Each result is one product, whose factors float8 holds, times two scales.

    A scale is a rounded quotient, and PyTorch does not say in what order its kernels multiply by
    both, nor whether in one step or two. Of two quotients and two products each rounds by half an
    epsilon at most.
    """
    linear = nn.Linear(16, 16, bias=False)
    with torch.no_grad():
        linear.weight.copy_(torch.eye(16))
    to_float8(linear)
    x = torch.tensor([448.0, 224, 7, 3, -1.5, 0, *([1] * 10)])
    torch.testing.assert_close(linear(x), x, rtol=2.1 * torch.finfo(x.dtype).eps, atol=0)


@pytest.mark.parametrize("value", [0.0, 1e-30, 1e30])
def test_scales_follow_the_tensors(value):
    linear = make(16, 16, bias=False)
    exact = linear(torch.full((3, 16), value))
    to_float8(linear)
    found = linear(torch.full((3, 16), value))
    assert bool(
        ((found - exact).abs() <= bound(torch.full((3, 16), value), linear.weight.t(), 0.2)).all()
    )


def test_nan_stays_visible():
    linear = make(16, 16)
    to_float8(linear)
    x = torch.ones(2, 16)
    x[0, 0] = float("nan")
    assert bool(linear(x)[0].isnan().all())


def test_autocast_decides_the_dtype_of_the_result():
    linear = make(16, 16)
    to_float8(linear)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = linear(torch.ones(2, 16, requires_grad=True))
    assert y.dtype == torch.bfloat16
    y.sum().backward()
    assert linear.weight.grad.dtype == torch.float32


def test_only_what_fits_is_changed():
    class Own(nn.Linear):
        pass

    model = nn.ModuleDict(
        {
            "fits": nn.Linear(16, 32),
            "inputs": nn.Linear(10, 32),
            "outputs": nn.Linear(16, 7),
            "wide": nn.Linear(16, 16).double(),
            "own": Own(16, 16),
        }
    )
    assert to_float8(model) == {
        "fits": None,
        "inputs": "in_features is 10, no multiple of 16",
        "outputs": "out_features is 7, no multiple of 16",
        "wide": "its weight is torch.float64",
    }
    assert [type(each).__name__ for each in model.values()] == [
        "Float8Linear",
        "Linear",
        "Linear",
        "Linear",
        "Own",
    ]


def test_everything_else_of_the_layer_stays():
    linear = make(16, 16)
    seen = []
    linear.register_forward_hook(lambda *_: seen.append(1))
    linear.bias.requires_grad_(False)
    before = {key: id(value) for key, value in linear.named_parameters()}
    state = copy.deepcopy(linear.state_dict())
    to_float8(linear)
    assert isinstance(linear, nn.Linear)
    assert {key: id(value) for key, value in linear.named_parameters()} == before
    linear.load_state_dict(state)
    linear(torch.ones(1, 16)).sum().backward()
    assert seen == [1]
    assert linear.bias.grad is None
    from_float8(linear)
    assert type(linear) is nn.Linear
    assert torch.equal(linear(torch.ones(1, 16)), nn.functional.linear(torch.ones(1, 16), **state))


def test_a_copy_has_parameters_of_its_own():
    linear = make(16, 16, bias=False)
    to_float8(linear)
    other = copy.deepcopy(linear)
    with torch.no_grad():
        other.weight.zero_()
    assert type(other) is Float8Linear
    assert not other(torch.ones(1, 16)).any()
    assert linear(torch.ones(1, 16)).any()


# of torch.compile itself
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_it_compiles_as_one_graph():
    linear = make(16, 32)
    to_float8(linear)
    x = normal(3, 16).requires_grad_()
    compiled = torch.compile(linear, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), linear(x))
    compiled(x).sum().backward()
    assert x.grad.shape == x.shape


def test_it_learns():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))
    to_float8(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x, target = normal(64, 32), normal(64, 16, seed=3)
    losses = []
    for _ in range(100):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.25 * losses[0]
