"""Forwards that run an op of tensor_ops.

Each runs the module's own forward whenever the call is not what the module was recognised by.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._C import _is_tracing, _len_torch_function_stack
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling
from torch.nn.modules.module import _has_any_global_hook

from tensor_ops.extension import OPS, decision
from tensor_ops_torch.modules.classes import Forward, Recipe, swapped_class
from tensor_ops_torch.modules.conditions import Check
from tensor_ops_torch.operators.direct import PLAIN, REFUSED, can_bypass_dispatcher, finder
from tensor_ops_torch.operators.tensors import HALF
from tensor_ops_torch.ops import DIRECT, OPERATORS

__all__ = [
    "ActivationRecipe",
    "GatedRecipe",
    "NormRecipe",
    "is_dtensor",
]

_MISSING = object()
# The number of elements below which PyTorch's own function is faster than an op whose gradients are
# recorded, since the op's backward calls Python. See decision 49.
_FEW = {
    ("layer_norm",): 1 << 18,
    ("softmax",): 1 << 18,
    ("silu",): 1 << 15,
    ("gelu", "tanh"): 1 << 13,
}
_PLAIN_OR_NONE = PLAIN | {type(None)}


@dataclass(frozen=True)
class NormRecipe(Recipe):
    """``rms_norm(x, weight + offset, eps)`` or ``layer_norm(x, weight + offset, bias, eps)``."""

    # The parameters; without a weight, that of the op is one.
    weight: str | None
    bias: str | None
    offset: bool  # one is added to the weight
    # The dtypes for which the module was confirmed, with eps or the attribute that holds it, which
    # is read at every call.
    eps: tuple[tuple[torch.dtype, float | str], ...]
    width: int | None  # the length that a row must have

    def forward(self, original: Forward, kind: type[nn.Module]) -> Forward:
        find, record = finder(OPS[self.op]), DIRECT[self.op]
        operator, few = OPERATORS[self.op], _few(kind, self.op)
        name_of_weight, name_of_bias, offset = self.weight, self.bias, self.offset
        eps_of, width = dict(self.eps), self.width
        holds, holds_eagerly = self.conditions.check(kind), self.conditions.check(kind, eager=True)
        has_bias = self.op == "layer_norm"
        # PyTorch computes few elements by this.
        compute_few = original
        if kind.forward is nn.LayerNorm.forward:
            compute_few = _layer_norm_of(holds_eagerly, original)

        def forward(module: nn.Module, x: Any = _MISSING, /, *args: Any, **kwargs: Any) -> Any:
            if args or kwargs:
                return _original(original, module, x, args, kwargs)
            records = torch.is_grad_enabled()
            if few and records and _is_for_pytorch(module, x, few):
                return compute_few(module, x)
            bypasses = can_bypass_dispatcher(x)
            if not (holds_eagerly(module) if bypasses else _is_taken(x) and holds(module)):
                return _original(original, module, x, args, kwargs)
            dtype = x.dtype
            eps: Any = eps_of.get(dtype)
            if type(eps) is str:
                eps = getattr(module, eps)
            if type(eps) not in (float, int) or not 0 <= eps < math.inf:
                return original(module, x)
            if not x.is_contiguous() or not x.ndim or (width and x.shape[-1] != width):
                return original(module, x)
            if bypasses and not offset:
                try:
                    weight = _plain(module, name_of_weight, x, dtype)
                    compute = record if records else find(dtype, x)
                    if not has_bias:
                        return compute(x, weight, eps)
                    bias = name_of_bias and _plain(module, name_of_bias, x, dtype)
                    return compute(x, weight, bias, eps)
                except REFUSED:
                    bypasses = False
                    if not _is_taken(x):
                        return original(module, x)
            if name_of_weight is None:
                weight = _ones(x.shape[-1], dtype, x.device)
            else:
                weight = _parameter(module, name_of_weight)
            bias = None if name_of_bias is None else _parameter(module, name_of_bias)
            if not (_fits(weight, x) or name_of_weight is None) or not (
                name_of_bias is None or _fits(bias, x)
            ):
                return original(module, x)
            if offset:
                if dtype in HALF:
                    # One plus the weight has more digits than a half type.
                    weight, bias = weight.float(), None if bias is None else bias.float()
                weight = weight + 1
            given = (weight, bias, eps) if has_bias else (weight, eps)
            if bypasses:
                try:
                    return (record if records else find(dtype, x))(x, *given)
                except REFUSED:
                    pass  # the operator computes it, or raises an error that says what is wrong
            return operator(x, *given)

        return forward


@dataclass(frozen=True)
class ActivationRecipe(Recipe):
    """``silu(x)``, ``gelu(x, approximate)`` or ``softmax(x)``."""

    approximate: str | None
    dtypes: tuple[torch.dtype, ...]  # those for which the module was confirmed

    @property
    def scalars(self) -> tuple[str, ...]:
        return () if self.approximate is None else (self.approximate,)

    def forward(self, original: Forward, kind: type[nn.Module]) -> Forward:
        find, record = finder(OPS[self.op]), DIRECT[self.op]
        approximate, dtypes, operator = self.approximate, self.dtypes, OPERATORS[self.op]
        holds, holds_eagerly = self.conditions.check(kind), self.conditions.check(kind, eager=True)
        few = _few(kind, self.op, *self.scalars)

        def forward(module: nn.Module, x: Any = _MISSING, /, *args: Any, **kwargs: Any) -> Any:
            if args or kwargs:
                return _original(original, module, x, args, kwargs)
            records = torch.is_grad_enabled()
            if few and records and _is_for_pytorch(module, x, few):
                return original(module, x)
            bypasses = can_bypass_dispatcher(x)
            if not (holds_eagerly(module) if bypasses else _is_taken(x) and holds(module)):
                return _original(original, module, x, args, kwargs)
            dtype = x.dtype
            if not x.is_contiguous() or dtype not in dtypes:
                return original(module, x)
            compute = operator
            if bypasses:
                try:
                    compute = record if records else find(dtype, x)
                    return compute(x) if approximate is None else compute(x, approximate)
                except REFUSED:
                    compute = operator  # computes it, or raises an error that says what is wrong
            if not x.ndim:
                return original(module, x)
            return compute(x) if approximate is None else compute(x, approximate)

        return forward


@dataclass(frozen=True)
class GatedRecipe(Recipe):
    """``after(silu_mul(gate(x), up(x)))``, or with ``gelu_mul``."""

    activation_recipe: ActivationRecipe  # that of the function or child that is the activation
    # The name and the class of that child; None where the module calls a function.
    activation: str | None
    activation_base: type[nn.Module] | None
    # The names of `gate` and `up` in the order of their calls, or of the one that has both.
    projections: tuple[str, ...]
    gate_first: bool  # `gate` is the first of the two
    after: tuple[str, ...]  # the children that are called on the product, one after the other

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        return self.activation_recipe.dtypes

    def forward(self, original: Forward, kind: type[nn.Module]) -> Forward:
        run_directly, operator = DIRECT[self.op], OPERATORS[self.op]
        name, recipe, base = self.activation, self.activation_recipe, self.activation_base
        scalars, dtypes = recipe.scalars, self.dtypes
        act_kind: type[nn.Module] | None = None
        act_holds: Check = _never
        act_holds_eagerly: Check = _never
        if base is not None:
            act_kind = swapped_class(base, recipe)
            act_holds = recipe.conditions.check(act_kind)
            act_holds_eagerly = recipe.conditions.check(act_kind, eager=True)
        projections, after, gate_first = self.projections, self.after, self.gate_first
        called = tuple(each for each in (name, *projections, *after) if each is not None)
        function: Any = nn.functional.silu
        if recipe.approximate is not None:
            function = functools.partial(nn.functional.gelu, approximate=recipe.approximate)
        holds, holds_eagerly = self.conditions.check(kind), self.conditions.check(kind, eager=True)

        def product(gate: Any, up: Any, bypasses: bool) -> Any:
            """Return what an op makes of both; None where they are not for an op."""
            if bypasses and type(gate) is Tensor and type(up) is Tensor and gate.dtype in dtypes:
                try:
                    return run_directly(gate, up, *scalars)
                except REFUSED:
                    pass  # the questions below decide
            if (
                _is_known(gate)
                and _are_alike(gate, up)
                and _is_known(up)
                and gate.dtype is up.dtype
                and gate.dtype in dtypes
                and gate.shape == up.shape
                and gate.device == up.device
            ):
                return operator(gate, up, *scalars)
            return None

        def forward(module: nn.Module, x: Any = _MISSING, /, *args: Any, **kwargs: Any) -> Any:
            bypasses = can_bypass_dispatcher(x)
            is_known = holds_eagerly(module) if bypasses else _is_taken(x) and holds(module)
            if args or kwargs or not is_known:
                return _original(original, module, x, args, kwargs)
            if x.dtype not in dtypes:
                return _original(original, module, x, args, kwargs)
            children = module._modules
            if None in map(children.get, called):
                return original(module, x)  # which asks for them, or calls a function
            activate = function
            if name is not None:
                activate = children[name]
                if (
                    type(activate) is not act_kind
                    or _is_hooked(activate)
                    or not (act_holds_eagerly if bypasses else act_holds)(activate)
                ):
                    return original(module, x)
            if len(projections) == 2:
                first, second = children[projections[0]](x), children[projections[1]](x)
            else:
                first, second = children[projections[0]](x).chunk(2, -1)
            gate, up = (first, second) if gate_first else (second, first)
            y = product(gate, up, bypasses)
            if y is None:
                y = activate(gate) * up
            for each in after:
                y = children[each](y)
            return y

        return forward


def _few(kind: type[nn.Module], *op: str) -> int:
    """Return the entry of `_FEW` for a class with a forward of PyTorch's, which is one function."""
    is_pytorch = kind.forward.__module__.startswith("torch.nn.modules.")
    return _FEW.get(op, 0) if is_pytorch else 0


def _is_for_pytorch(module: nn.Module, x: Any, few: int) -> bool:
    """Return whether a call records gradients of few elements, and no backend is named."""
    if type(x) is not Tensor or is_dynamo_compiling() or _is_tracing():
        return False
    if x.numel() >= few or not x.is_cpu or decision().strict:
        return False
    if x.requires_grad:
        return True
    return any(each is not None and each.requires_grad for each in module._parameters.values())


def _layer_norm_of(holds: Check, original: Forward) -> Forward:
    """Return what does the same as `torch.nn.LayerNorm`, with fewer calls of Python."""

    def layer_norm(module: Any, x: Tensor) -> Tensor:
        find = module._parameters.get
        weight, bias = find("weight", _MISSING), find("bias", _MISSING)
        if (
            not holds(module)
            or type(weight) not in _PLAIN_OR_NONE
            or type(bias) not in _PLAIN_OR_NONE
            or _len_torch_function_stack()
        ):
            result: Tensor = original(module, x)
            return result
        return torch.layer_norm(x, module.normalized_shape, weight, bias, module.eps)

    return layer_norm


def _never(module: nn.Module) -> bool:
    return False


def _plain(module: nn.Module, name: str | None, x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a parameter, or ones in the place of a weight; REFUSED where it is not plain."""
    if name is None:
        return _ones(x.shape[-1], dtype, x.device)
    found: Any = module._parameters[name]
    if type(found) not in PLAIN or found.dtype is not dtype:
        raise TypeError
    return found


def _ones(n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the weight of a norm that has none."""
    if torch.compiler.is_compiling():
        return torch.ones(n, dtype=dtype, device=device)
    return _kept_ones(n, dtype, device)


@functools.cache
def _kept_ones(n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # for calls that record gradients, too
        return torch.ones(n, dtype=dtype, device=device)


def _is_taken(x: Any) -> bool:
    """Return whether an operator takes a tensor and returns what the original would."""
    return (
        _is_known(x)
        and not x.is_meta
        # A trace is there to run without this package.
        and not torch.jit.is_tracing()
        # Autocast decides on dtypes; the operators have no tangents.
        and not torch.is_autocast_enabled(x.device.type)
        and forward_ad._current_level < 0
    )


def _is_known(x: Any) -> bool:
    kind = type(x)
    is_kind = kind in PLAIN or is_dtensor(kind)
    return is_kind and x.layout is torch.strided and not x.is_nested


def _are_alike(tensor: Any, x: Tensor) -> bool:
    """Return whether both are plain tensors or both are DTensors."""
    kind = type(tensor)
    return kind in PLAIN if type(x) in PLAIN else kind is type(x)


def is_dtensor(kind: type) -> bool:
    """Return whether a type is DTensor, whose import takes long."""
    return kind.__name__ == "DTensor" and kind.__module__.startswith("torch.distributed.tensor")


def _original(original: Forward, module: nn.Module, x: Any, args: Any, kwargs: Any) -> Any:
    return (
        original(module, *args, **kwargs) if x is _MISSING else original(module, x, *args, **kwargs)
    )


def _parameter(module: nn.Module, name: str) -> Any:
    found = module._parameters.get(name)
    # A parametrization makes it a property.
    return getattr(module, name, None) if found is None else found


def _fits(vector: Any, x: Tensor) -> bool:
    return (
        _are_alike(vector, x)
        and vector.dtype is x.dtype
        and vector.shape == x.shape[-1:]
        and vector.device == x.device
    )


def _is_hooked(module: Any) -> bool:
    """Return whether something waits for the call of a module."""
    getattr(module, "forward", None)  # without it, no compiler guards on the field below
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in vars(module)
        or _has_any_global_hook()
    )
