"""Forwards that run an op of tensor_ops, and the classes that have them.

A swapped module is an instance of a class that is made here: a subclass of the module's own, with
another ``forward``. Each forward runs the original one whenever the call is not what the module was
recognised by.
"""

from __future__ import annotations

import copyreg
import functools
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from tensor_ops.ops import OPS
from tensor_ops_torch.direct import PLAIN, REFUSED, direct, is_bare, shortened
from tensor_ops_torch.ops import OPERATORS
from tensor_ops_torch.tensors import HALF

__all__ = [
    "SMALL",
    "ActivationRecipe",
    "GatedRecipe",
    "NormRecipe",
    "Recipe",
    "base_of",
    "has_other_forward",
    "is_dtensor",
    "recipe_of",
    "swapped_class",
]

# Where a module is one function of PyTorch, the call of an op from Python may cost more than the op
# saves, below so many numbers.
SMALL = 65536
_RECIPE, _BASE = "_tensor_ops_recipe", "_tensor_ops_base"
_MISSING = object()
Forward = Callable[..., Any]


@dataclass(frozen=True)
class NormRecipe:
    """``rms_norm(x, weight + offset, eps)`` or ``layer_norm(x, weight + offset, bias, eps)``.

    Attributes
    ----------
    op : {"rms_norm", "layer_norm"}
    offset : bool
        Whether one is added to the weight.
    attribute : str or None
        The module's attribute that holds eps, read at every call.
    eps : tuple of (torch.dtype, float)
        The dtypes for which the module was confirmed, and eps where no attribute holds one.
    single : bool
        Whether the module is one function of PyTorch, which runs where the input is small.
    """

    op: str
    offset: bool
    attribute: str | None
    eps: tuple[tuple[torch.dtype, float], ...]
    single: bool

    def forward(self, original: Forward) -> Forward:
        at_once, compute = direct(OPS[self.op]), shortened(OPS[self.op], OPERATORS[self.op])
        offset, attribute = self.offset, self.attribute
        default, single = dict(self.eps), self.single
        has_bias = self.op == "layer_norm"

        def on_row(module: nn.Module, x: Tensor) -> Any:
            """Compute what generation asks for most; REFUSED for anything else."""
            eps, parameters = default[x.dtype], module._parameters
            weight: Any = parameters["weight"]
            if type(weight) not in PLAIN or weight.dtype is not x.dtype:
                raise TypeError
            if attribute is not None and (given := getattr(module, attribute)) is not None:
                eps = given
            if has_bias:
                bias = parameters["bias"]
                if bias is not None and type(bias) not in PLAIN:
                    raise TypeError
                return at_once(x, weight, bias, eps)
            return at_once(x, weight, eps)

        def forward(module: nn.Module, x: Any = _MISSING, /, *args: Any, **kwargs: Any) -> Any:
            if args or kwargs or (single and _is_small(x)):
                return _original(original, module, x, args, kwargs)
            if not offset and is_bare(x) and x.is_contiguous():
                try:
                    return on_row(module, x)
                except REFUSED:
                    pass  # the questions below decide
            if not _is_taken(x) or not x.is_contiguous():
                return _original(original, module, x, args, kwargs)
            weight = _parameter(module, "weight")
            bias = _parameter(module, "bias") if has_bias else None
            dtype = x.dtype
            if dtype not in default or not _fits(weight, x) or not (bias is None or _fits(bias, x)):
                return original(module, x)
            eps = None if attribute is None else getattr(module, attribute)
            if eps is None:
                eps = default[dtype]
            biases: tuple[Any, ...] = (bias,) if has_bias else ()
            if not offset:
                return compute(x, weight, *biases, eps)
            if dtype not in HALF:
                return compute(x, weight + 1, *biases, eps)
            # One plus the weight has more digits than a half type.
            biases = tuple(None if each is None else each.float() for each in biases)
            return compute(x, weight.float() + 1, *biases, eps)

        return forward


@dataclass(frozen=True)
class ActivationRecipe:
    """``silu(x)`` or ``gelu(x, approximate)``.

    Attributes
    ----------
    op : {"silu", "gelu"}
    approximate : str or None
    watched : tuple of (str, object)
        The module's attributes that change what it computes, with the values it was recognised by.
    dtypes : tuple of torch.dtype
        Those for which the module was confirmed.
    single : bool
        Whether the module is one function of PyTorch, which runs where the input is small.
    """

    op: str
    approximate: str | None
    watched: tuple[tuple[str, Any], ...]
    dtypes: tuple[torch.dtype, ...]
    single: bool

    @property
    def scalars(self) -> tuple[str, ...]:
        return () if self.approximate is None else (self.approximate,)

    def forward(self, original: Forward) -> Forward:
        compute = shortened(OPS[self.op], OPERATORS[self.op])
        scalars, dtypes = self.scalars, self.dtypes
        watched, single = self.watched, self.single

        def forward(module: nn.Module, x: Any = _MISSING, /, *args: Any, **kwargs: Any) -> Any:
            if args or kwargs or (single and _is_small(x)) or not _is_taken(x):
                return _original(original, module, x, args, kwargs)
            if not x.is_contiguous() or x.dtype not in dtypes or _has_changed(module, watched):
                return original(module, x)
            return compute(x, *scalars)

        return forward


@dataclass(frozen=True)
class GatedRecipe:
    """``down(silu_mul(gate(x), up(x)))``, or with ``gelu_mul``.

    Attributes
    ----------
    op : {"silu_mul", "gelu_mul"}
    approximate : str or None
    projections : tuple of str
        The names of `gate` and `up` in the order of their calls, or of the one that has both.
    gate_first : bool
        Whether `gate` is the first of the two.
    down : str
    activation : str or None
        The name of the activation; None where the module calls a function.
    activation_base, activation_recipe : type and ActivationRecipe, or None
        What the activation was recognised by.
    dtypes : tuple of torch.dtype
        Those for which the module was confirmed.
    """

    op: str
    approximate: str | None
    projections: tuple[str, ...]
    gate_first: bool
    down: str
    activation: str | None
    activation_base: type[nn.Module] | None
    activation_recipe: ActivationRecipe | None
    dtypes: tuple[torch.dtype, ...]

    def forward(self, original: Forward) -> Forward:
        at_once, operator, dtypes = direct(OPS[self.op]), OPERATORS[self.op], self.dtypes
        scalars = () if self.approximate is None else (self.approximate,)
        name, recipe, base = self.activation, self.activation_recipe, self.activation_base
        kind: type[nn.Module] | None = None
        watched: tuple[tuple[str, Any], ...] = ()
        if base is not None and recipe is not None:
            kind, watched = swapped_class(base, recipe), recipe.watched
        single = recipe is None or recipe.single
        projections, down, gate_first = self.projections, self.down, self.gate_first
        function = self._function()

        def product(gate: Any, up: Any, bare: bool) -> Any:
            """Return what an op makes of both; None where they are not for an op."""
            if bare and type(gate) is Tensor and type(up) is Tensor and gate.dtype in dtypes:
                try:
                    return at_once(gate, up, *scalars)
                except REFUSED:
                    pass  # the questions below decide
            if (
                _is_known(gate)
                and _are_alike(gate, up)
                and gate.dtype is up.dtype
                and gate.dtype in dtypes
                and gate.shape == up.shape
                and gate.device == up.device
                and not (single and _is_small(gate))
            ):
                return operator(gate, up, *scalars)
            return None

        def forward(module: nn.Module, x: Any = _MISSING, /, *args: Any, **kwargs: Any) -> Any:
            if args or kwargs:
                return _original(original, module, x, args, kwargs)
            bare = is_bare(x)
            if not (bare or _is_taken(x)) or x.dtype not in dtypes:
                return _original(original, module, x, args, kwargs)
            children = module._modules
            activate: Any = function
            if name is not None:
                activate = children[name]
                if (
                    type(activate) is not kind
                    or _is_hooked(activate)
                    or (watched and _has_changed(activate, watched))
                ):
                    return original(module, x)
            if len(projections) == 2:
                first, second = children[projections[0]](x), children[projections[1]](x)
            else:
                first, second = children[projections[0]](x).chunk(2, -1)
            gate, up = (first, second) if gate_first else (second, first)
            found = product(gate, up, bare)
            return children[down](activate(gate) * up if found is None else found)

        return forward

    def _function(self) -> Callable[[Tensor], Tensor]:
        if self.approximate is None:
            return nn.functional.silu
        return functools.partial(nn.functional.gelu, approximate=self.approximate)


Recipe = NormRecipe | ActivationRecipe | GatedRecipe

# Classes live as long as a module of theirs does.
_classes: WeakKeyDictionary[type, WeakValueDictionary[Recipe, type]] = WeakKeyDictionary()


def swapped_class(base: type[nn.Module], recipe: Recipe) -> type[nn.Module]:
    """Return the subclass of a class of modules whose forward follows a recipe.

    It has the name of its base: what looks at names, as ``repr`` and some policies of sharding do,
    finds the module that it knew.
    """
    known = _classes.setdefault(base, WeakValueDictionary())
    found = known.get(recipe)
    if found is None:
        found = known[recipe] = _new_class(base, recipe)
    return found


def recipe_of(module: nn.Module) -> Recipe | None:
    """Return the recipe that the forward of a module follows."""
    return getattr(type(module), _RECIPE, None)


def base_of(module: nn.Module) -> type[nn.Module] | None:
    """Return the class that a swapped module had, None where its class was not made here."""
    return vars(type(module)).get(_BASE)


def has_other_forward(module: nn.Module) -> bool:
    """Return whether a forward was set on an instance that is not its class's own."""
    own = vars(module).get("forward")
    # What accelerate leaves behind when its hooks are removed is the class's own.
    is_own = getattr(own, "__func__", None) is type(module).forward and own.__self__ is module
    return own is not None and not is_own


def _new_class(base: type[nn.Module], recipe: Recipe) -> type[nn.Module]:
    forward = recipe.forward(base.forward)
    forward.__name__, forward.__qualname__ = "forward", f"{base.__qualname__}.forward"
    forward.__doc__ = base.forward.__doc__

    def __reduce_ex__(self: Any, protocol: Any) -> Any:  # noqa: N807
        reduced = super(made, self).__reduce_ex__(max(int(protocol), 2))
        if type(self) is made and reduced[:2] == (copyreg.__newobj__, (made,)):  # type: ignore[attr-defined]
            return (_rebuild, (base, recipe), *reduced[2:])
        return reduced

    namespace = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "forward": forward,
        "__reduce_ex__": __reduce_ex__,
        _BASE: base,
        _RECIPE: recipe,
    }
    made: type[nn.Module] = types.new_class(
        base.__name__, (base,), exec_body=lambda body: body.update(namespace)
    )
    return made


def _rebuild(base: type[nn.Module], recipe: Recipe) -> nn.Module:
    """Make the module that was pickled or copied, before its state is set."""
    kind = swapped_class(base, recipe)
    made: nn.Module = object.__new__(kind)
    return made


def _is_taken(x: Any) -> bool:
    """Return whether an operator takes a tensor and returns what the original would."""
    return (
        _is_known(x)
        and x.layout is torch.strided
        and not x.is_nested
        and not x.is_meta
        # A trace is there to run without this package.
        and not torch.jit.is_tracing()
        # Where autocast decides on dtypes, and for tangents, which the operators do not have.
        and not torch.is_autocast_enabled(x.device.type)
        and forward_ad._current_level < 0
    )


def _is_small(x: Any) -> bool:
    # What is compiled has no Python to wait for, and should not depend on sizes.
    return (
        type(x) is Tensor
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and x.numel() < SMALL
    )


def _is_known(x: Any) -> bool:
    kind = type(x)
    return kind in PLAIN or is_dtensor(kind)


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


def _has_changed(module: Any, watched: tuple[tuple[str, Any], ...]) -> bool:
    return any(getattr(module, name) != value for name, value in watched)


def _is_hooked(module: Any) -> bool:
    """Return whether something waits for the call of a module."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in vars(module)
    )
