"""Calls of every operator, made from the table of ops."""

from functools import partial

import pytest
import torch

from tensor_ops.ops import OPS
from tensor_ops_torch.ops import FORMULAS, OPERATORS


class Call:
    """A call of an op in float64, with given scalars.

    Attributes
    ----------
    op : Op
    operator, composed : callable
        The operator and the formula in PyTorch's functions, both of arrays alone.
    """

    def __init__(self, op, scalars, left_out=()):
        self.op = op
        self.operator = partial(OPERATORS[op.name], **scalars)
        if op.name in FORMULAS:
            self.composed = partial(FORMULAS[op.name].composed, **scalars)
        self.public = partial(op.public, **scalars)
        self._roles = [
            kind.role for name, kind in op.kinds.items() if kind.is_array and name not in left_out
        ]

    def arrays(self, rows=3, n=6):
        """Return arrays of rows of `n` elements, which require gradients; all of them differ."""
        shape = (2, rows, n) if "half_rows" in self._roles else (rows, n)
        half = (shape[-2], shape[-1] // 2)
        made = []
        for index, role in enumerate(self._roles):
            own = {"row_vector": shape[-1:], "half_rows": half}.get(role, shape)
            if role == "half_rows" and self._roles[index - 1] == role:
                own = half[1:]  # one row for all
            generator = torch.Generator().manual_seed(sum(own) + index)
            made.append(torch.randn(*own, dtype=torch.float64, generator=generator))
        return tuple(each.requires_grad_() for each in made)


def calls_of(op):
    """Yield calls of an op: with defaults, and with every option at another value."""
    yield op.name, Call(op, {})
    for name, kind in op.kinds.items():
        default = op.signature.parameters[name].default
        if kind.is_array:
            if kind.optional:
                yield f"{op.name} without {name}", Call(op, {}, left_out=(name,))
            continue
        values = {"real": (0.7,), "flag": (not default,), "choice": kind.choices}[kind.role]
        for value in values:
            if value != default:
                yield f"{op.name}, {name}={value}", Call(op, {name: value})


ALL = {label: call for op in OPS.values() for label, call in calls_of(op)}


def pytest_generate_tests(metafunc):
    """Run a test for each call: `call` stands for any, `derived` for those with derivatives."""
    for argument, chosen in (
        ("call", ALL),
        ("derived", {label: each for label, each in ALL.items() if each.op.name in FORMULAS}),
    ):
        if argument in metafunc.fixturenames:
            metafunc.parametrize(argument, chosen.values(), ids=chosen)


# PyTorch itself looks at these of derivatives for seconds: its checks, its compiler and derivatives
# of their derivatives.
SLOW_OF_DERIVATIVES = ("what_pytorch_checks", "without_graph_breaks", "of_gradients")


@pytest.hookimpl(tryfirst=True)  # before what is nightly is left out
def pytest_collection_modifyitems(items):
    for item in items:
        is_slow = any(part in item.originalname for part in SLOW_OF_DERIVATIVES)
        if is_slow and "_backward" in item.name:
            item.add_marker(pytest.mark.nightly)
