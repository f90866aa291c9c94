"""Calls past PyTorch's dispatcher: nobody who listens to it misses them."""

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

import tensor_ops
import tensor_ops_torch
from tensor_ops_torch import restore_model, swap_modules


class Tenfold(torch.Tensor):
    """Stands for ten times what is in its memory."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        def meant(x):
            return 10 * x.as_subclass(torch.Tensor) if type(x) is cls else x

        with torch._C.DisableTorchFunctionSubclass():
            named = {name: meant(each) for name, each in (kwargs or {}).items()}
            return func(*map(meant, args), **named)


@pytest.fixture(params=["cpp", "python"], autouse=True)
def backend(request):
    with tensor_ops.use_backend(request.param):
        yield request.param


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


@pytest.fixture
def operators(monkeypatch):
    """Counts the calls of operators, as the dispatcher sees them."""
    seen = []

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func.name())
            return func(*args, **(kwargs or {}))

    def count(call, *args):
        seen.clear()
        with Counting():
            call(*args)
        return [each for each in seen if each.startswith("tensor_ops::")]

    return count


X = torch.linspace(-3, 3, 24).reshape(4, 6)
W = torch.linspace(0.5, 2, 6)


def test_the_backend_is_called_at_once(backend, monkeypatch):
    net = swap_modules_of(nn.Sequential(nn.RMSNorm(6), Gated()))
    monkeypatch.setattr("tensor_ops_torch.operators.definition.function_of", None)
    if backend == "cpp":
        assert net(X).shape == tensor_ops_torch.silu(X).shape == X.shape
        return
    with pytest.raises(TypeError, match="NoneType"):
        tensor_ops_torch.silu(X)


def test_a_mode_sees_the_operators(operators):
    model = swap_modules_of(nn.Sequential(nn.RMSNorm(6), nn.SiLU()))
    assert operators(tensor_ops_torch.silu, X) == ["tensor_ops::silu"]
    assert operators(model, X) == ["tensor_ops::rms_norm", "tensor_ops::silu"]


def swap_modules_of(model):
    assert not swap_modules(model, strict=True).refused
    return model


class TestTensorsThatMeanSomethingElse:
    def test_signs_that_are_not_in_memory(self):
        negative = torch._neg_view(X)
        right = functional.silu(-X)
        torch.testing.assert_close(tensor_ops_torch.silu(negative), right)
        weight = tensor_ops_torch.rms_norm(X, torch._neg_view(W))
        torch.testing.assert_close(weight, -tensor_ops_torch.rms_norm(X, W))

    def test_zeros_that_are_not_in_memory(self):
        assert not tensor_ops_torch.silu(torch._efficientzerotensor((3,))).any()

    def test_functionalize(self):
        found = torch.func.functionalize(tensor_ops_torch.silu)(X)
        torch.testing.assert_close(found, functional.silu(X))

    def test_vmap(self):
        net = swap_modules_of(nn.Sequential(nn.RMSNorm(6), nn.SiLU()))
        right = restore_model(swap_modules_of(nn.Sequential(nn.RMSNorm(6), nn.SiLU())))(X)
        torch.testing.assert_close(torch.func.vmap(net)(X), right)
        torch.testing.assert_close(torch.func.vmap(tensor_ops_torch.silu)(X), functional.silu(X))

    def test_a_subclass_beside_a_plain_tensor(self):
        right = functional.rms_norm(X, (6,), 10 * W, 1e-6)
        found = tensor_ops_torch.rms_norm(X, W.as_subclass(Tenfold))
        torch.testing.assert_close(found, right)

    def test_a_weight_of_a_subclass(self):
        norm = nn.RMSNorm(6, eps=1e-6)
        norm.weight.data = W.clone()
        swap_modules_of(norm)
        norm._parameters["weight"] = W.as_subclass(Tenfold)
        torch.testing.assert_close(norm(X), functional.rms_norm(X, (6,), 10 * W, 1e-6))

    def test_no_weight(self):
        for norm in (nn.RMSNorm(6, eps=1e-6), nn.LayerNorm(6)):
            swap_modules_of(norm)
            norm.weight = norm.bias = None
            torch.testing.assert_close(norm(X), restore_model(norm)(X))

    @pytest.mark.parametrize(
        ("x", "error"), [(X.to_sparse(), TypeError), (torch.arange(3), TypeError)]
    )
    def test_errors_are_the_operators(self, x, error):
        with pytest.raises(error) as found:
            tensor_ops_torch.silu(x)
        with pytest.raises(error) as right:
            torch.ops.tensor_ops.silu(x)
        assert str(found.value) == str(right.value)


# PyTorch's own, when it first meets a tangent.
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
class TestForwardMode:
    def test_no_tangent_is_lost(self):
        with torch.no_grad(), forward_ad.dual_level():
            dual = forward_ad.make_dual(X, torch.ones_like(X))
            weight = forward_ad.make_dual(W, torch.ones_like(W))
            for y in (tensor_ops_torch.silu(dual), tensor_ops_torch.rms_norm(X, weight)):
                assert forward_ad.unpack_dual(y).tangent.any()

    def test_swapped_modules_have_their_own_derivatives(self):
        net = swap_modules_of(nn.SiLU())
        found, tangent = torch.func.jvp(net, (X,), (torch.ones_like(X),))
        right, expected = torch.func.jvp(functional.silu, (X,), (torch.ones_like(X),))
        torch.testing.assert_close((found, tangent), (right, expected))


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = nn.Linear(6, 8), nn.Linear(6, 8)
        self.down = nn.Linear(8, 6)

    def product(self, x):
        return functional.silu(self.gate(x)) * self.up(x)

    def forward(self, x):
        return self.down(self.product(x))


class Clamping(Gated):
    def forward(self, x):
        y = self.product(x)
        return self.down(y.clamp(-0.01, 0.01) if y.dtype == torch.float16 else y)


class Converting(Gated):
    def forward(self, x):
        return super().forward(x.to(self.gate.weight.dtype))


class Unpacking(Gated):
    def forward(self, x):
        return super().forward(x[0] if isinstance(x, tuple) else x)


class MindingAutocast(Gated):
    def forward(self, x):
        if torch.is_autocast_enabled("cpu"):
            return x
        return super().forward(x)


class TestMLPsDoElsewhereWhatTheirOwnForwardDoes:
    """Their forwards do more for some calls, so that they are kept."""

    @pytest.fixture(params=[torch.no_grad, torch.enable_grad], autouse=True)
    def mode(self, request):
        with request.param():
            yield

    def same(self, module, x):
        right = module(x)
        swap_modules(module)
        torch.testing.assert_close(module(x), right, rtol=0, atol=0)

    def test_in_another_dtype(self):
        module = Clamping()
        swap_modules(module)
        module.half()
        x = 5 * X.half()
        torch.testing.assert_close(module(x), restore_model(module)(x), rtol=0, atol=0)

    def test_for_input_of_another_dtype(self):
        self.same(Converting(), X.bfloat16())

    def test_for_input_of_another_kind(self):
        module = Unpacking()
        swap_modules(module)
        torch.testing.assert_close(module((X, None)), restore_model(module)(X))

    def test_under_autocast(self):
        module = MindingAutocast()
        swap_modules(module)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert module(X) is X


def test_gradients_are_seen_by_modes(operators):
    with torch.enable_grad():
        x = X.clone().requires_grad_()
        y = tensor_ops_torch.rms_norm(x, W)
    seen = operators(lambda: torch.autograd.grad(y, x, torch.ones_like(y)))
    assert seen == ["tensor_ops::rms_norm_backward"]


def test_gradients_are_those_of_what_a_subclass_means():
    """A gradient is a plain tensor even where a weight is not."""
    grads = []
    for weight in (10 * W, W.as_subclass(Tenfold)):
        with torch.enable_grad():
            x = X.clone().requires_grad_()
            y = tensor_ops_torch.rms_norm(x, weight)
        grads += torch.autograd.grad(y, x, torch.ones(4, 6))
    torch.testing.assert_close(grads[1], grads[0])


@torch.enable_grad()
def test_gradients_are_recorded_at_once(operators, monkeypatch):
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    expected = torch.autograd.grad(torch.ops.tensor_ops.rms_norm(x, w).square().sum(), (x, w))
    assert operators(tensor_ops_torch.rms_norm, x, w) == ["tensor_ops::rms_norm"]
    found = torch.autograd.grad(tensor_ops_torch.rms_norm(x, w).square().sum(), (x, w))
    assert all(map(torch.equal, found, expected))
    assert tensor_ops_torch.rms_norm(X, W).grad_fn is None


@torch.enable_grad()
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((X, W[:3]), ValueError, "weight (must have|has) shape"),
        ((X,), TypeError, "missing a required argument"),
        ((X, W, 1e-6, 1), TypeError, "too many positional arguments"),
        ((X, [1.0] * 6), TypeError, "weight must be a torch.Tensor"),
    ],
)
def test_errors_are_those_of_the_operator_where_gradients_are_recorded(arguments, error, message):
    x, *others = arguments
    with pytest.raises(error, match=message):
        tensor_ops_torch.rms_norm(x.clone().requires_grad_(), *others)


@torch.enable_grad()
def test_transforms_of_gradients_are_not_passed_by():
    x = X.clone().requires_grad_()
    found = torch.func.vmap(torch.func.grad(lambda row: tensor_ops_torch.silu(row).sum()))(x)
    (expected,) = torch.autograd.grad(tensor_ops_torch.silu(x).sum(), x)
    torch.testing.assert_close(found, expected)
