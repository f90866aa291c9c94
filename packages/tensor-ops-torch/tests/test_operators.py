"""The operators: what PyTorch asks of one."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import tensor_ops_torch
from tensor_ops_torch.ops import OPERATORS


def draw(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator, requires_grad=True)


CALLS = {
    "rms_norm": lambda: (draw(3, 6), draw(6)),
    "add_rms_norm": lambda: (draw(3, 6), draw(6, 3).T, draw(6)),
    "layer_norm": lambda: (draw(3, 6), draw(6), draw(6)),
    "silu": lambda: (draw(3, 4),),
    "gelu": lambda: (draw(3, 4),),
    "silu_mul": lambda: (draw(3, 4), draw(3, 4)),
    "gelu_mul": lambda: (draw(3, 4), draw(3, 4), "none"),
    "softmax": lambda: (draw(3, 5), 0.7),
    "rope": lambda: (draw(2, 3, 6), draw(3, 3), draw(3)),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_gradients(name):
    operator, arguments = OPERATORS[name], CALLS[name]()
    assert gradcheck(operator, arguments)
    assert gradgradcheck(operator, arguments)


@pytest.mark.parametrize("name", OPERATORS)
def test_what_pytorch_checks_of_an_operator(name):
    outcome = torch.library.opcheck(OPERATORS[name], CALLS[name]())
    assert set(outcome.values()) == {"SUCCESS"}


def test_every_operator_is_a_function_of_the_package():
    for name in OPERATORS:
        assert getattr(tensor_ops_torch, name) is OPERATORS[name]
