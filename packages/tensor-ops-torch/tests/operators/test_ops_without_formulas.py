"""An op that has no file in tensor_ops_torch/ops."""

import inspect

import numpy as np
import pytest
import torch
from torch import func

import tensor_ops
from tensor_ops import BackendError
from tensor_ops.op import OPS, Op
from tensor_ops.op.arguments import Elements, Rows
from tensor_ops_torch.operators.definition import define
from tensor_ops_torch.operators.function import function_of


def plus_twice(x: Rows, y: Elements, *, out=None, backend=None):
    """Add the double of an array.

    Parameters
    ----------
    x, y : array
    out : array, optional

    Returns
    -------
    array
    """
    np.add(x, 2 * y, out=out)
    return out


@pytest.fixture(scope="module")
def op():
    op = Op(plus_twice, (), {"float32": None}, (), (), {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(OPS, op.name, op)
        with tensor_ops.use_backend("python"):
            yield op


@pytest.fixture(scope="module")
def defined(op):
    return define(op, None)


@pytest.fixture(scope="module")
def operator(defined):
    return defined[0]


def test_it_runs(op, operator, defined):
    x, y = torch.ones(2, 3), torch.arange(6.0).reshape(2, 3)
    expected = x + 2 * y
    function = function_of(op, *defined, None)
    for call in (operator, function, torch.compile(operator, backend="aot_eager", fullgraph=True)):
        assert torch.equal(call(x, y), expected)
    assert torch.equal(function(x, y=y), expected)
    assert torch.equal(torch.vmap(operator)(x, y), expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(operator(x, y), expected)
    outcome = torch.library.opcheck(operator, (x, y))
    assert set(outcome.values()) == {"SUCCESS"}


def test_its_docstring_says_so(op, defined):
    doc = inspect.getdoc(function_of(op, *defined, None))
    assert "Has no derivatives" in doc
    assert "Examples" not in doc


# PyTorch's own, when it first meets a tangent.
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_derivatives_are_an_error_that_says_what_to_write(operator):
    x, y = torch.ones(2, 3), torch.ones(2, 3, requires_grad=True)
    result = operator(x, y)
    assert torch.equal(result, torch.full((2, 3), 3.0))
    with pytest.raises(
        NotImplementedError, match=r"`gradients` in tensor_ops_torch/ops/plus_twice"
    ):
        result.sum().backward()
    with pytest.raises(NotImplementedError, match="`tangents`"):
        func.jvp(operator, (x, x), (x, x))
    with torch.no_grad():
        assert not operator(x, y).requires_grad


def test_a_device_of_no_backend_is_an_error(op):
    from tensor_ops_torch.operators import definition

    x = torch.ones(2, 3, device="meta")  # stands for a device that is not here
    with pytest.raises(BackendError) as caught:
        definition.device_kernel(op, None)(x, x)
    assert "move the tensors to the CPU" in caught.value.__notes__[0]
