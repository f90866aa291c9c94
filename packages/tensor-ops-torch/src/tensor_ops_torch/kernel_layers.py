"""Ops for the layers and functions that the package `kernels` of Hugging Face replaces by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

import tensor_ops
from tensor_ops_torch.ops import FUNCTIONS

__all__ = ["OpLayer", "kernel_mapping"]

_gelu, _rms_norm, _rope = FUNCTIONS["gelu"], FUNCTIONS["rms_norm"], FUNCTIONS["rope"]
_silu, _silu_mul = FUNCTIONS["silu"], FUNCTIONS["silu_mul"]

# Whether the function behind a class that `kernels` made of it rotates as the op does.
_ROTATES_HALVES: WeakKeyDictionary[type, bool] = WeakKeyDictionary()


# The package `kernels` binds the `forward` of these classes to modules of a model, whose own class
# stays. It refuses classes with a constructor or other members than these two, so that attributes
# of `self` are those of the model's module.
class _Layer(nn.Module):
    can_torch_compile = True
    has_backward = True


class _RMSNorm(_Layer):
    def forward(self: Any, hidden_states: Tensor) -> Tensor:
        if hidden_states.dtype != self.weight.dtype or hidden_states.dtype == torch.float64:
            return type(self).forward(self, hidden_states)
        return _rms_norm(hidden_states, self.weight, self.variance_epsilon)


class _RMSNormZeroCentered(_Layer):
    def forward(self: Any, x: Tensor) -> Tensor:
        if x.dtype == torch.float64:
            return type(self).forward(self, x)
        return _rms_norm(x, 1.0 + self.weight.float(), self.eps)


class _RMSNormGated(_Layer):
    def forward(self: Any, hidden_states: Tensor, gate: Tensor | None = None) -> Tensor:
        dtypes = {hidden_states.dtype, self.weight.dtype, getattr(gate, "dtype", None)}
        if len(dtypes) > 1 or torch.float64 in dtypes or self.activation != "silu":
            return type(self).forward(self, hidden_states, gate)
        return _silu_mul(gate, _rms_norm(hidden_states, self.weight, self.variance_epsilon))


class _SiLU(_Layer):
    def forward(self: Any, input: Tensor) -> Tensor:
        return _silu(input)


class _GELU(_Layer):
    def forward(self: Any, input: Tensor) -> Tensor:
        return _gelu(input, "none")


class _GELUTanh(_Layer):
    def forward(self: Any, input: Tensor) -> Tensor:
        return _gelu(input, "tanh")


class _Rotation(_Layer):
    # The comparison of both halves of `cos` is nothing that a compiler can see the result of.
    can_torch_compile = False

    def forward(
        self: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1
    ) -> tuple[Tensor, Tensor]:
        half = cos.shape[-1] // 2
        c, s = cos[..., :half], sin[..., :half]
        if (
            not q.dtype == k.dtype == cos.dtype == sin.dtype
            or not _rotates_halves(self)
            or not (torch.equal(c, cos[..., half:]) and torch.equal(s, sin[..., half:]))
        ):
            return type(self).forward(self, q, k, cos, sin, unsqueeze_dim)
        c, s = c.unsqueeze(unsqueeze_dim), s.unsqueeze(unsqueeze_dim)
        return _rope(q, c, s), _rope(k, c, s)


def _rotates_halves(function: nn.Module) -> bool:
    """Whether a function of that name is the op, which a few families' are not, by an example."""
    own = type(function)
    if own not in _ROTATES_HALVES:
        x = torch.linspace(-1, 1, 8).reshape(1, 1, 1, 8)
        angles = torch.tensor([[[0.1, 0.7, 1.3, 2.9] * 2]])
        cos, sin = angles.cos(), angles.sin()
        expected = _rope(x, cos[..., :4], sin[..., :4])
        with torch.no_grad():
            try:
                results = own.forward(function, x, -x, cos, sin)
                agrees = all(map(torch.allclose, results, (expected, -expected)))
            except (RuntimeError, TypeError, ValueError):
                agrees = False
        _ROTATES_HALVES[own] = agrees
    return _ROTATES_HALVES[own]


_LAYERS: dict[str, type[_Layer]] = {
    "FastGELU": _GELUTanh,
    "GeLU": _GELU,
    "GeluTanh": _GELUTanh,
    "NewGELU": _GELUTanh,
    "RMSNorm": _RMSNorm,
    "RMSNormGated": _RMSNormGated,
    "RMSNormZeroCentered": _RMSNormZeroCentered,
    "SiLU": _SiLU,
    "rotary_pos_emb": _Rotation,
}


@dataclass(frozen=True)
class OpLayer:
    """A layer of `kernel_mapping`, which `kernels` loads by its name.

    Attributes
    ----------
    name : str
        The name that classes of transformers are marked with, such as ``"RMSNorm"``.
    """

    name: str

    def load(self) -> type[nn.Module]:
        """Return the class whose ``forward`` takes the place of a module's own.

        Returns
        -------
        type
            A subclass of `torch.nn.Module`. Where a call is not what its op computes, it runs the
            forward of the module's own class.
        """
        return _LAYERS[self.name]

    def __str__(self) -> str:
        return f"tensor_ops_torch ({self.name})"


def kernel_mapping() -> dict[str, dict[str, OpLayer]]:
    """Return the ops as what ``kernels.register_kernel_mapping`` takes; nothing is downloaded.

    Models of transformers mark their norms, activations and rotations by names that Hugging Face's
    package ``kernels`` replaces: ``kernels.kernelize(model, mode=..., device="cpu")``, or
    ``use_kernels=True`` of ``from_pretrained``.

    Returns
    -------
    dict
        By the name of a layer and the type of a device, ``"cpu"`` and, where the CUDA backend can
        run, ``"cuda"``: an `OpLayer`. All layers are for inference and training; all but
        ``"rotary_pos_emb"`` are for ``torch.compile``.

    Notes
    -----
    Results stay within the error bounds of the ops, which round once. A module's own forward runs
    where the result would be another: for parameters of another dtype than the input, float64,
    gates other than SiLU, and rotations that are not of two halves by the same angles.

    Examples
    --------
    >>> import tensor_ops_torch
    >>> mapping = tensor_ops_torch.kernel_mapping()
    >>> print(mapping["RMSNorm"]["cpu"])
    tensor_ops_torch (RMSNorm)
    """
    available = tensor_ops.get_backend_info()["available_backends"]
    devices = ["cpu", "cuda"] if "cuda" in available else ["cpu"]
    return {name: dict.fromkeys(devices, OpLayer(name)) for name in _LAYERS}
