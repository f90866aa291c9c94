"""Modules that are SiLU, GELU or softmax."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn

from tensor_ops_torch.modules import samples
from tensor_ops_torch.modules.conditions import Conditions
from tensor_ops_torch.modules.forms import Activation
from tensor_ops_torch.modules.recipes import ActivationRecipe
from tensor_ops_torch.ops import FORMULAS

__all__ = ["check_activation", "exact"]


def exact(activation: Activation, x: Tensor) -> Tensor:
    """Return the activation of float64 numbers."""
    op, approximate = activation
    result: Tensor = FORMULAS[op].precise(x, *(() if approximate is None else (approximate,)))
    return result


def check_activation(
    module: nn.Module,
    activation: Activation,
    dtypes: Collection[torch.dtype],
    conditions: Conditions,
    *,
    gradients: bool = False,
) -> ActivationRecipe:
    """Return the recipe of an activation, for the dtypes in which it rounds as little as an op.

    Raises RefusedError if its results are not the formula's in float32.
    """
    op, approximate = activation
    name = op if approximate is None else f"{op}(approximate={approximate!r})"
    inputs = {dtype: _range(op, dtype) for dtype in samples.SAMPLED if dtype in dtypes}
    trials = {dtype: samples.Trial(x, exact(activation, x.double())) for dtype, x in inputs.items()}
    recipe = samples.confirmed(
        module,
        op,
        name,
        trials,
        (torch.float32,),
        lambda known: ActivationRecipe(op, conditions, approximate, known),
    )
    if gradients:
        samples.check_gradients(
            op,
            lambda x: samples.run(samples.shadow(module, training=True), x),
            lambda x: exact(activation, x),
            (3 * samples.normal(256).float(),),
        )
    return recipe


def _range(op: str, dtype: torch.dtype) -> Tensor:
    steps = torch.linspace(-12, 12, 4096, dtype=torch.float64)
    small, far = 1e-3 * samples.normal(8), 1e4 * samples.normal(8, seed=1)
    if op == "softmax":
        return torch.cat((steps, small)).to(dtype).reshape(1, 8, -1)
    return torch.cat((steps, small, far, torch.zeros(1))).to(dtype).reshape(1, 3, -1)
