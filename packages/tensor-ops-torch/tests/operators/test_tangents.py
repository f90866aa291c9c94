"""Forward-mode derivatives of the operators, alone and with the other transforms."""

import pytest
import torch
from torch import func
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import tensor_ops_torch
from tensor_ops_torch.ops import FORMULAS, OPERATORS

# PyTorch's own, when it first meets a tangent.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


def draw(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator, requires_grad=True)


def as_tuple(results):
    return results if isinstance(results, tuple) else (results,)


def loss_of(function):
    return lambda *arrays: sum((each + each**3).sum() for each in as_tuple(function(*arrays)))


class TestOfFloat64:
    def test_against_differences(self, derived):
        assert gradcheck(
            derived.operator,
            derived.arrays(),
            check_forward_ad=True,
            check_batched_forward_grad=True,
        )

    def test_of_gradients(self, derived):
        assert gradgradcheck(derived.operator, derived.arrays(), check_fwd_over_rev=True)

    @pytest.mark.parametrize(
        "transform",
        [
            func.jacfwd,
            func.hessian,
            lambda f, index: func.jacrev(func.jacfwd(f, index), index),
            lambda f, index: func.jacfwd(func.jacfwd(f, index), index),
            lambda f, index: func.jacfwd(func.hessian(f, index), index),
        ],
        ids=["jacfwd", "hessian", "reverse over forward", "forward twice", "third"],
    )
    @pytest.mark.sampled(2, "derived", "transform")
    def test_transforms(self, derived, transform):
        operator, composed, arrays = derived.operator, derived.composed, derived.arrays()
        arrays = [each.detach() for each in arrays]
        for index in range(len(arrays)):
            found, expected = (
                transform(loss_of(each), index)(*arrays) for each in (operator, composed)
            )
            torch.testing.assert_close(found, expected)

    def test_of_some_arrays(self, derived):
        operator, composed, arrays = derived.operator, derived.composed, derived.arrays()
        for index, array in enumerate(arrays):
            with forward_ad.dual_level():
                duals = [each.detach() for each in arrays]
                duals[index] = forward_ad.make_dual(duals[index], torch.ones_like(array))
                for found, expected in zip(
                    as_tuple(operator(*duals)), as_tuple(composed(*duals)), strict=True
                ):
                    (one, tangent), (other, right) = map(forward_ad.unpack_dual, (found, expected))
                    # The sum of add_rms_norm does not depend on the weight.
                    right = torch.zeros_like(other) if right is None else right
                    torch.testing.assert_close((one, tangent), (other, right))

    def test_vmap(self, derived):
        operator, composed, arrays = derived.operator, derived.composed, derived.arrays()
        batches = tuple(torch.stack((each, -each)).detach() for each in arrays)

        def derivative(function):
            return lambda *each: func.jvp(function, each, each)

        found, expected = (torch.vmap(derivative(each))(*batches) for each in (operator, composed))
        torch.testing.assert_close(found, expected)
        mapped = func.jvp(torch.vmap(operator), batches, batches)
        torch.testing.assert_close(mapped, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_of_training_dtypes(derived, dtype):
    """Against those of the formula in float64, with results that are the operator's."""
    operator, composed, arrays = derived.operator, derived.composed, derived.arrays()
    rounded = tuple(each.detach().to(dtype) for each in arrays)
    exact = tuple(each.double() for each in rounded)
    results, tangents = map(as_tuple, func.jvp(operator, rounded, rounded))
    assert all(map(torch.equal, results, as_tuple(operator(*rounded))))
    for found, expected in zip(
        tangents, as_tuple(func.jvp(composed, exact, exact)[1]), strict=True
    ):
        assert found.dtype == dtype
        error = (found.double() - expected).abs().max() / expected.abs().max()
        # Two roundings to the dtype, of the result and on the way to it; sums of a dozen terms.
        assert error <= 8 * torch.finfo(dtype).eps


def test_results_have_the_dtypes_of_mixed_arguments():
    x, residual = torch.randn(2, 6, dtype=torch.bfloat16), torch.randn(2, 6)
    weight = torch.randn(6)
    for index in range(3):
        with forward_ad.dual_level():
            arrays = [x, residual, weight]
            arrays[index] = forward_ad.make_dual(arrays[index], torch.ones_like(arrays[index]))
            y, h = map(forward_ad.unpack_dual, tensor_ops_torch.add_rms_norm(*arrays))
            assert (y.tangent.dtype, h.tangent.dtype) == (torch.bfloat16, torch.float32)
            assert h.tangent.any() == (index < 2)


def test_fused_gradients_have_tangents():
    """Tangents that are not recorded run PyTorch's fused forms elsewhere."""
    x, weight = draw(3, 6), draw(6).detach()
    for name, arguments in (("silu", ()), ("gelu", ()), ("layer_norm", (weight, weight))):
        ones = torch.ones_like(x)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, ones)
            (grad,) = torch.autograd.grad(OPERATORS[name](dual, *arguments).square().sum(), x)
            found = forward_ad.unpack_dual(grad).tangent
        result = FORMULAS[name].composed(x, *arguments).square().sum()
        (grad,) = torch.autograd.grad(result, x, create_graph=True)
        (expected,) = torch.autograd.grad(grad, x, ones)  # second derivatives are symmetric
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", ["silu_mul", "gelu_mul"])
def test_what_has_no_tangent_adds_nothing(name):
    """Not even infinity times zero."""
    with forward_ad.dual_level():
        up = torch.tensor([torch.inf, 1.0])
        gate = torch.tensor([2.0, torch.inf])
        y = OPERATORS[name](gate, forward_ad.make_dual(up, torch.ones(2)))
        expected = OPERATORS[name](gate, torch.ones(2))
        torch.testing.assert_close(forward_ad.unpack_dual(y).tangent, expected)


def test_no_grad_and_no_tangents():
    x = torch.randn(3)
    with torch.no_grad():
        _, tangent = func.jvp(tensor_ops_torch.silu, (x,), (torch.ones(3),))
    _, expected = func.jvp(torch.nn.functional.silu, (x,), (torch.ones(3),))
    torch.testing.assert_close(tangent, expected)
    with forward_ad.dual_level():
        assert forward_ad.unpack_dual(tensor_ops_torch.silu(x)).tangent is None
        dual = forward_ad.make_dual(x, torch.ones(3))
        assert forward_ad.unpack_dual(tensor_ops_torch.silu(dual.detach())).tangent is None


# PyTorch's own, about constants.
@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning")
def test_linearize():
    x = torch.randn(2, 6)
    weight = torch.randn(6)
    result, derivative = func.linearize(lambda x: tensor_ops_torch.rms_norm(x, weight), x)
    expected = func.jvp(
        lambda x: tensor_ops_torch.rms_norm(x, weight), (x,), (weight.expand(2, 6),)
    )
    torch.testing.assert_close((result, derivative(weight.expand(2, 6))), expected)


def test_compile():
    torch._dynamo.reset()
    x = torch.randn(2, 6)

    def derivative(x):
        return func.jvp(tensor_ops_torch.softmax, (x,), (x,))

    compiled = torch.compile(derivative, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), derivative(x))
