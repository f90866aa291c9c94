"""The ops in PyTorch's own functions, which run on devices that no backend has."""

import pytest
import torch

from tensor_ops_torch.operators.rows import wide_dtype
from tensor_ops_torch.operators.tensors import DTYPE_NAMES
from tensor_ops_torch.ops import FORMULAS, OPERATORS


def as_tuple(results):
    return results if isinstance(results, tuple) else (results,)


def draw(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator, requires_grad=True)


def test_composed_is_the_op(derived):
    """What runs on devices that no backend has gives the op's values."""
    found = as_tuple(derived.composed(*derived.arrays()))
    for one, other in zip(found, as_tuple(derived.operator(*derived.arrays())), strict=True):
        torch.testing.assert_close(one, other)


class TestComposedAtTheEdges:
    """Rows that PyTorch's own functions make infinite or NaN."""

    @pytest.mark.parametrize(
        ("rows", "eps", "expected"),
        [
            ([[1e200, 1e200]], 1e-6, [[1.0, 1.0]]),
            ([[1e-200, 1e-200]], 0.0, [[1.0, 1.0]]),
            ([[5e-324, -5e-324]], 0.0, [[1.0, -1.0]]),
            ([[2.0**-530, 2.0**-530]], 3 * 2.0**-1060, [[0.5, 0.5]]),
            ([[1e300, 1e300], [3.0, 3.0]], 0.0, [[1.0, 1.0], [1.0, 1.0]]),
            ([[0.0, 0.0]], 1e-6, [[0.0, 0.0]]),
        ],
    )
    def test_rms_norm_of_float64(self, rows, eps, expected):
        x, weight = torch.tensor(rows, dtype=torch.float64), torch.ones(2).double()
        right = torch.tensor(expected, dtype=torch.float64)
        composed = FORMULAS["rms_norm"].composed
        torch.testing.assert_close(composed(x, weight, eps), right, rtol=4e-15, atol=0)
        composed = FORMULAS["add_rms_norm"].composed
        y, h = composed(x, torch.zeros_like(x), weight, eps)
        torch.testing.assert_close(y, right, rtol=4e-15, atol=0)
        assert torch.equal(h, x)

    def test_a_sum_that_overflows_in_float64(self):
        x = torch.tensor([[1.5e308, 1.5e308], [1.0, 1.0]], dtype=torch.float64)
        y, h = FORMULAS["add_rms_norm"].composed(x, x, torch.ones(2).double())
        torch.testing.assert_close(y, torch.ones_like(x), rtol=1e-6, atol=0)
        assert h.isinf().tolist() == [[True, True], [False, False]]

    @pytest.mark.parametrize(
        ("row", "eps", "expected"),
        [
            ([1.7e308, 1.7e308, 1.7e308, -1.7e308], 0.0, [3**-0.5] * 3 + [-(3**0.5)]),
            ([1e-200, 3e-200], 0.0, [-1.0, 1.0]),
            ([1.7e308, 1.7e308], 1e-5, [0.0, 0.0]),
        ],
    )
    def test_layer_norm_of_float64(self, row, eps, expected):
        x = torch.tensor([row, [*range(len(row))]], dtype=torch.float64)
        composed, weight = FORMULAS["layer_norm"].composed, torch.ones(len(row)).double()
        found = composed(x, weight, -weight, eps)
        right = torch.tensor(expected, dtype=torch.float64) - 1
        torch.testing.assert_close(found[0], right, rtol=4e-15, atol=4e-15)
        assert torch.equal(found[1], composed(x[1], weight, -weight, eps))

    @pytest.mark.parametrize("name", ["rms_norm", "layer_norm"])
    @pytest.mark.parametrize("scale", [1e200, 1e-200])
    def test_gradients_of_float64(self, name, scale):
        """Gradients of a row times a number are those of the row divided by it; eps is zero."""
        x, weight, direction = draw(3, 6), draw(6), draw(3, 6).detach()
        y = OPERATORS[name](x, weight, eps=0.0)
        expected = torch.autograd.grad(y, (x, weight), direction)
        scaled = (x.detach() * scale).requires_grad_()
        y = OPERATORS[name](scaled, weight, eps=0.0)
        found = torch.autograd.grad(y, (scaled, weight), direction)
        torch.testing.assert_close(found[0] * scale, expected[0], rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(found[1], expected[1], rtol=1e-12, atol=1e-13)

    @pytest.mark.parametrize("dtype", DTYPE_NAMES, ids=DTYPE_NAMES.get)
    def test_signs_of_zeros(self, dtype):
        x = torch.tensor([0.0, -0.0, -torch.inf, -2000.0, torch.finfo(dtype).min], dtype=dtype)
        up = -torch.ones_like(x)
        for name, options in (("silu", ()), ("gelu", ("tanh",)), ("gelu", ("none",))):
            for found, of, sign in (
                (FORMULAS[name].composed(x, *options), dtype, 1),
                (FORMULAS[f"{name}_mul"].composed(x, up, *options), wide_dtype(x), -1),
            ):
                signs = [False, True, True, True, True]
                if options == ("none",):
                    # PyTorch's own decides, which may be oneDNN's: with AVX2 -0.0 is 0.0 there.
                    zeros = torch.zeros_like(x, dtype=of)
                    signs[1] = torch.nn.functional.gelu(-zeros)[1].signbit().item()
                assert not found.any()
                assert (sign * found).signbit().tolist() == signs

    @pytest.mark.parametrize("dtype", DTYPE_NAMES, ids=DTYPE_NAMES.get)
    @pytest.mark.parametrize(
        ("name", "scalars"), [("silu", ()), ("gelu", ("tanh",)), ("gelu", ("none",))]
    )
    def test_derivatives_at_the_infinities(self, dtype, name, scalars):
        """They are the limits, and so are those far outside, where cubes overflow."""
        far = torch.finfo(dtype).max
        x = torch.tensor([-torch.inf, -far, far, torch.inf], dtype=dtype, requires_grad=True)
        expected = torch.tensor([0, 0, 1, 1], dtype=dtype)
        ones = torch.ones_like(x)

        def derivatives(function, x):
            (first,) = torch.autograd.grad(function(x), x, ones, create_graph=True)
            (second,) = torch.autograd.grad(first, x, ones)
            return first, second

        operator, gated = OPERATORS[name], OPERATORS[f"{name}_mul"]
        (once,) = torch.autograd.grad(operator(x, *scalars), x, ones)
        assert torch.equal(once, expected)
        for function in (lambda x: operator(x, *scalars), lambda x: gated(x, ones, *scalars)):
            first, second = derivatives(function, x)
            assert torch.equal(first, expected)
            assert not second.any()
        (of_up,) = torch.autograd.grad(gated(x[:1], up := draw(1).to(dtype), *scalars), up)
        assert of_up.item() == 0

    @pytest.mark.parametrize("dtype", DTYPE_NAMES, ids=DTYPE_NAMES.get)
    @pytest.mark.parametrize("approximate", ["tanh", "none"])
    def test_gelu_at_infinity(self, dtype, approximate):
        # PyTorch has other code for few elements than for whole vectors.
        x = torch.full((67,), torch.inf, dtype=dtype)
        up = torch.ones_like(x).requires_grad_()
        assert torch.equal(FORMULAS["gelu"].composed(x, approximate), x)
        assert torch.equal(FORMULAS["gelu_mul"].composed(x, up, approximate), x)
        y = OPERATORS["gelu_mul"](x, up, approximate)
        (grad,) = torch.autograd.grad(y, up, torch.ones_like(y))
        assert torch.equal(grad, x)

    def test_nan_stays_nan_in_derivatives(self):
        x = torch.tensor([torch.nan], requires_grad=True)
        for name in ("silu", "gelu"):
            (grad,) = torch.autograd.grad(OPERATORS[name](x), x)
            assert grad.isnan()
