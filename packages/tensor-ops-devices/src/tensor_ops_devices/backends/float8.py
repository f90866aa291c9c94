"""Linear layers whose matrix products have float8 inputs.

`to_float8` changes the class of each ``nn.Linear`` that fits to `Float8Linear`; parameters, hooks,
`state_dict` and everything else stay as they are, and `from_float8` changes it back.

Forward, ``y = x w^T + b``: `x` and `w` are each divided by one scale, the largest magnitude / 448,
rounded to `torch.float8_e4m3fn` and multiplied by `torch._scaled_mm`, which accumulates in float32
and returns the dtype of `x`. Backward, the gradient of `y` is rounded to `torch.float8_e5m2` with a
scale of its own, and both products are of float8 too. Parameters and their gradients keep
their dtype, so that an optimizer sees nothing of it. Scales are computed anew in each call from the
tensors themselves: nothing has to be calibrated or saved. Weights are rounded in each call as well,
which pays for products of many rows (training, prefill), not of a few (decode).

The error of float8 is that of 3 bits of mantissa: 6 % of each factor at most, a few percent of a
typical output. Since the scale is the whole tensor's, a row's result depends on the rows beside it.
NaN in gives NaN out; Inf gives NaN.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Float8Linear", "from_float8", "to_float8", "why_not"]

_E4M3, _E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# The kernels of cuBLASLt take matrices whose sizes are multiples of it.
_MULTIPLE = 16


class Float8Linear(nn.Linear):
    """An ``nn.Linear`` that multiplies float8; see this module for how.

    Examples
    --------
    >>> import torch
    >>> from tensor_ops_devices.backends.float8 import to_float8
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Linear(32, 10))
    >>> to_float8(model)
    {'0': None, '1': 'out_features is 10, no multiple of 16'}
    >>> type(model[0]).__name__
    'Float8Linear'
    """

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        rows = x.reshape(-1, self.in_features)
        y = _Float8Product.apply(rows, self.weight).reshape(*x.shape[:-1], self.out_features)
        return y if self.bias is None else y + self.bias.to(y.dtype)


class _Float8Product(torch.autograd.Function):
    """``x @ w.T`` for `x` (m, k) and `w` (n, k)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return _product(_quantize(x, _E4M3), _quantize(w, _E4M3), x.dtype, fast=True)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, w = ctx.saved_tensors
        # The sum for `w` is over the rows, as many as there may be: zeros make them a multiple.
        missing = -grad.shape[0] % _MULTIPLE
        rounded = _quantize(nn.functional.pad(grad, (0, 0, 0, missing)), _E5M2)
        grad_x = grad_w = None
        if ctx.needs_input_grad[0]:
            whole = _product(rounded, _transposed(_quantize(w, _E4M3)), x.dtype)
            grad_x = whole[: grad.shape[0]]
        if ctx.needs_input_grad[1]:
            padded = _quantize(nn.functional.pad(x, (0, 0, 0, missing)), _E4M3)
            grad_w = _product(_transposed(rounded), _transposed(padded), w.dtype)
        return grad_x, grad_w


def to_float8(model: nn.Module) -> dict[str, str | None]:
    """Let the linear layers of a model multiply float8, in place.

    Returns a dict from the name of each ``nn.Linear`` to None, or to why it stays as it is.
    """
    outcome = {}
    for name, module in model.named_modules():
        if type(module) is nn.Linear:
            outcome[name] = why_not(module)
            if outcome[name] is None:
                module.__class__ = Float8Linear
    return outcome


def from_float8(model: nn.Module) -> None:
    """Undo `to_float8`, in place."""
    for module in model.modules():
        if type(module) is Float8Linear:
            module.__class__ = nn.Linear


def why_not(linear: nn.Linear) -> str | None:
    """Return why a linear layer cannot multiply float8, None if it can."""
    for name in ("in_features", "out_features"):
        if getattr(linear, name) % _MULTIPLE:
            return f"{name} is {getattr(linear, name)}, no multiple of {_MULTIPLE}"
    if linear.weight.dtype not in _DTYPES:
        return f"its weight is {linear.weight.dtype}"
    return None


def _quantize(tensor: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return a tensor rounded to float8, row-major, and the scale to multiply it with."""
    largest = torch.finfo(dtype).max
    wide = tensor.float()
    # An empty tensor has no maximum, and zeros need some scale.
    top = wide.abs().amax() if tensor.numel() else wide.new_zeros(())
    scale = (top / largest).clamp(min=torch.finfo(torch.float32).tiny)
    return (wide / scale).clamp(-largest, largest).to(dtype).contiguous(), scale


def _product(
    left: tuple[Tensor, Tensor],
    right: tuple[Tensor, Tensor],
    dtype: torch.dtype,
    fast: bool = False,
) -> Tensor:
    """Return ``left @ right.T``, both row-major, which is the layout that the kernels want."""
    (a, scale_a), (b, scale_b) = left, right
    if a.numel() == 0:  # no rows, or a gradient of none
        return torch.zeros(a.shape[0], b.shape[0], dtype=dtype, device=a.device)
    return torch._scaled_mm(
        a, b.t(), scale_a=scale_a, scale_b=scale_b, out_dtype=dtype, use_fast_accum=fast
    )


def _transposed(rounded: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return rounded[0].t().contiguous(), rounded[1]
