"""When a swapped module calls its op, and when PyTorch's own function."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from transformers.models.cohere.modeling_cohere import CohereLayerNorm

import tensor_ops
from tensor_ops_torch import swap_modules

MODULES = {
    "layer_norm": lambda: nn.LayerNorm(64),
    "softmax": lambda: nn.Softmax(-1),
    "silu": nn.SiLU,
    "gelu": lambda: nn.GELU("tanh"),
}


def swapped(module):
    assert not swap_modules(module, strict=True).refused
    return module


def is_op(y):
    """Return whether an op will compute the gradients of what led to a tensor."""
    return type(y.grad_fn).__name__.startswith("Differentiable")


@pytest.fixture(autouse=True)
def automatic(named_backend):
    with tensor_ops.use_backend("auto"):
        yield


@pytest.fixture(params=MODULES)
def module(request):
    return MODULES[request.param]()


@pytest.fixture
def x():
    return torch.randn(3, 64, requires_grad=True)


def test_pytorch_differentiates_few_elements(module, x):
    own = module(x)
    own.sum().backward()
    expected, x.grad = x.grad, None
    y = swapped(module)(x)
    y.sum().backward()
    assert type(y.grad_fn) is type(own.grad_fn)
    assert torch.equal(y, own)
    assert torch.equal(x.grad, expected)


@pytest.mark.parametrize("options", [{"elementwise_affine": False}, {"bias": False}])
def test_pytorch_differentiates_a_layer_norm_without_parameters(options, x):
    module = nn.LayerNorm(64, **options)
    own = module(x)
    y = swapped(module)(x)
    assert type(y.grad_fn) is type(own.grad_fn)
    assert torch.equal(y, own)


class Doubled(nn.Module):
    def forward(self, weight):
        return 2 * weight


def test_few_elements_take_a_parametrized_weight(x):
    module = swapped(nn.LayerNorm(64))
    expected = 2 * module(x)
    parametrize.register_parametrization(module, "weight", Doubled())
    assert torch.equal(module(x), expected)


class Seen(torch.overrides.TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.functions = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.functions.append(function)
        return function(*args, **(kwargs or {}))


def test_a_mode_sees_the_functions_that_pytorch_calls_for_few_elements(module, x):
    with Seen() as own:
        module(x)
    swapped(module)
    with Seen() as seen:
        module(x)
    assert seen.functions[-len(own.functions) :] == own.functions


def test_a_layer_norm_of_another_forward_is_that(x, monkeypatch):
    module = swapped(nn.LayerNorm(64))
    monkeypatch.setattr(nn.LayerNorm, "forward", lambda self, x: x + 1)
    assert torch.equal(module(x), x + 1)


def test_a_layer_norm_whose_weight_is_hidden_takes_what_hides_it(x):
    module = swapped(nn.LayerNorm(64))
    expected = 3 * module(x)
    vars(module)["weight"] = torch.full((64,), 3.0)
    assert torch.equal(module(x), expected)


def test_an_op_differentiates_many(module):
    many = torch.randn(4096, 64, requires_grad=True)
    y = swapped(module)(many)
    assert is_op(y)
    assert y.shape == many.shape


def test_a_backend_that_is_named_runs(module, x):
    swapped(module)
    with tensor_ops.use_backend("cpp"):
        assert is_op(module(x))


def test_an_op_runs_where_nothing_is_recorded(module, x, calls):
    swapped(module)
    with torch.no_grad():
        assert len(calls(module, x)) == 1
    assert len(calls(module.requires_grad_(False), x.detach())) == 1


def test_parameters_alone_are_recorded_too(x):
    assert not is_op(swapped(nn.LayerNorm(64))(x.detach()))


@pytest.mark.parametrize(
    "module", [nn.GELU(), nn.RMSNorm(64), CohereLayerNorm(64)], ids=lambda m: str(m)[:9]
)
def test_an_op_differentiates_what_takes_pytorch_longer(module, x):
    assert is_op(swapped(module)(x))
